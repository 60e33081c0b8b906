// One turn of a conversation -> its article: text as it comes, thinking and tool calls folded, figures, what can be done.
import {make, makeCopyButton} from "./dom.js";
import {addPlain, MarkdownView, showControls} from "./markdown.js";

const COUNT = new Intl.NumberFormat("en");
const RATE = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});

export function makeQuestion({content}) {
  const text = make("div", {className: "text plain", dir: "auto"});
  addPlain(text, showControls(content));
  // A long one scrolls by itself: by keyboard too.
  const tabIndex = content.length > 500 ? 0 : -1;
  return make("article", {className: "turn question", tabIndex}, make("h2", {className: "unseen", textContent: "You"}), text);
}

/** An answer: of a turn that is kept, or one that comes. */
export class AnswerView {
  #view;
  #thinking;
  #calls = [];

  /** `onBlock` gets the text of each finished block. */
  constructor(onBlock) {
    this.text = make("div", {className: "text", dir: "auto"});
    this.before = make("div");
    this.problem = make("p", {className: "problem", hidden: true});
    this.figures = make("p", {className: "figures"});
    this.actions = make("div", {className: "actions"});
    const title = make("h2", {className: "unseen", textContent: "Answer"});
    this.element = make("article", {className: "turn answer"},
      title, this.before, this.text, this.problem, make("footer", {}, this.figures, this.actions));
    this.#view = new MarkdownView(this.text, onBlock);
  }

  /** `calls` are those of all records so far. */
  add(record, calls) {
    if (record.response) this.#view.add(record.response);
    if (record.reasoning) this.#addThinking(record.reasoning);
    if (record.tool_calls?.length) this.#showCalls(calls);
  }

  #addThinking(text) {
    if (!this.#thinking) {
      this.#thinking = make("div", {className: "plain", dir: "auto", tabIndex: 0});
      this.before.append(make("details", {}, make("summary", {textContent: "Thinking"}), this.#thinking));
    }
    addPlain(this.#thinking, showControls(text));
  }

  #showCalls(calls) {
    for (const [index, call] of calls.entries()) {
      if (!call) continue;
      if (!this.#calls[index]) {
        const [summary, written] = [make("summary"), make("pre", {className: "plain", tabIndex: 0})];
        this.#calls[index] = {summary, written, shown: 0};
        this.before.append(make("details", {}, summary, written));
      }
      const shown = this.#calls[index];
      shown.summary.textContent = `Calls ${showControls(call.name || "a tool")}`;
      addPlain(shown.written, showControls(call.arguments.slice(shown.shown)));
      shown.shown = call.arguments.length;
    }
  }

  /** No more text comes. Returns when all of it is shown. */
  end(turn) {
    this.figures.textContent = describe(turn);
    this.problem.hidden = !turn.problem;
    this.problem.textContent = turn.problem ?? "";
    if (turn.content) this.actions.append(makeCopyButton(() => turn.content));
    return this.#view.end();
  }

  /** All that has come of an answer. */
  addAll({content, reasoning, calls}) {
    this.add({response: content, reasoning, tool_calls: calls}, calls);
  }
}

/** The figures of an answer, those that are known. */
function describe({model, first, rate, tokens}) {
  return [
    model, first === undefined ? "" : `first token after ${RATE.format(first)} ms`,
    tokens ? `${COUNT.format(tokens)} tokens` : "", rate ? `${RATE.format(rate)} tokens/s` : "",
  ].filter(Boolean).join(" \u00b7 ");
}
