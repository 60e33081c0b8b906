// Text as it comes -> blocks of the page: a finished block is rendered once, only the last one again, once a frame.
import {Marked} from "./marked.esm.js";

/** Characters of one frame: what comes faster waits for the next ones, so that no frame is long. */
const MAX_FRAME_CHARACTERS = 16_384;
/** A block that is still longer without an end is no longer read as Markdown, but added to as plain text. */
const MAX_BLOCK_CHARACTERS = 8_192;
/** Plain text is laid out in pieces: a browser lays out the last one again when text is added. */
const PIECE_CHARACTERS = 4_096;
const MIN_SPLIT_CHARACTERS = 2_048;

// What a terminal or a text's direction would obey: control characters, and those that reorder a line.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const CONTROL_PICTURES = 0x2400;

const escapeHtml = text => text.replace(/[&<>"]/g, found => `&#${found.charCodeAt(0)};`);
const marked = new Marked({
  gfm: true,
  renderer: {
    // A model's HTML is shown as it is written.
    html: ({text}) => escapeHtml(text),
    // An image from elsewhere would tell its server who reads: it becomes a link.
    image: ({href, text}) => `<a href="${escapeHtml(href)}">image: ${escapeHtml(text || href)}</a>`,
    checkbox: ({checked}) => checked ? "\u2611 " : "\u2610 ",
  },
});
const SAFE = {
  ALLOWED_TAGS: [
    ..."a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre strong".split(" "),
    ..."table tbody td th thead tr ul".split(" "),
  ],
  ALLOWED_ATTR: ["href", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["start", "align"],
  RETURN_DOM_FRAGMENT: true,
};
DOMPurify.addHook("afterSanitizeAttributes", element => {
  if (element.hasAttribute("href")) {
    element.setAttribute("target", "_blank");
    element.setAttribute("rel", "noopener noreferrer");
  }
  // Wide content scrolls by itself: by keyboard too.
  if (element.localName === "pre" || element.localName === "table") element.setAttribute("tabindex", "0");
});

/** Text without anything that a reader could not see. */
export function showControls(text) {
  return text.replace(CONTROLS, found => {
    const code = found.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(CONTROL_PICTURES + code) : `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/** Adds plain text to an element, in pieces. */
export function addPlain(element, text) {
  while (text) {
    let piece = element.lastElementChild;
    if (piece?.className !== "piece" || piece.textContent.length >= PIECE_CHARACTERS) {
      piece = element.appendChild(document.createElement("span"));
      piece.className = "piece";
    }
    const room = PIECE_CHARACTERS - piece.textContent.length;
    let cut = text.length > room ? text.lastIndexOf("\n", room - 1) + 1 || room : text.length;
    // Both halves of a character stay together.
    if (/[\ud800-\udbff]/.test(text[cut - 1]) && cut < text.length) cut++;
    piece.append(text.slice(0, cut));
    if (cut < text.length) element.append(Object.assign(document.createElement("span"), {className: "piece"}));
    text = text.slice(cut);
  }
}

/** One answer's text. */
export class MarkdownView {
  #pending = "";
  #tail = "";
  #fence = "";
  #plain = null;
  #ended = false;
  #asked = false;
  #last;

  /** `onBlock` gets the text of each finished block. */
  constructor(element, onBlock = () => {}) {
    this.element = element;
    this.onBlock = onBlock;
    this.#last = element.appendChild(document.createElement("div"));
    this.drawn = new Promise(resolve => { this.settle = resolve; });
  }

  add(text) {
    this.#pending += showControls(text);
    this.#ask();
  }

  /** No more text comes; `drawn` is kept when all is shown. */
  end() {
    this.#ended = true;
    this.#ask();
    return this.drawn;
  }

  #ask() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#draw();
      if (this.#pending) this.#ask();
      else if (this.#ended) this.#finish();
    });
  }

  #draw() {
    const room = MAX_FRAME_CHARACTERS - this.#tail.length;
    this.#tail += this.#pending.slice(0, room);
    this.#pending = this.#pending.slice(room);
    if (this.#plain) this.#drawPlain();
    if (!this.#plain) this.#drawBlocks();
  }

  #drawBlocks() {
    if (firstLineLength(this.#tail) > MAX_BLOCK_CHARACTERS) return this.#becomePlain(this.#tail);
    const tokens = lex(this.#tail);
    if (!tokens) return this.#becomePlain(this.#tail);
    const isLast = index => tokens.slice(index + 1).every(({type}) => type === "space");
    let index = 0;
    for (; index < tokens.length && !isLast(index); index++) this.#keep(tokens[index]);
    const last = tokens[index];
    this.#tail = tokens.slice(index).map(({raw}) => raw).join("");
    if (!last) return this.#last.replaceChildren();
    if (last.type === "list" && last.items.length > 1 && last.raw.length > MIN_SPLIT_CHARACTERS) {
      // A long list is finished item by item.
      this.#keep({...last, items: last.items.slice(0, -1)});
      this.#tail = this.#tail.slice(last.raw.lastIndexOf(last.items.at(-1).raw));
      return this.#drawBlocks();
    }
    if (last.raw.length > MAX_BLOCK_CHARACTERS) return this.#becomePlain(this.#tail);
    this.#last.replaceChildren(render([last]));
  }

  #keep(token) {
    if (token.type === "space") return;
    const block = render([token]);
    this.onBlock(block.textContent);
    this.#last.before(block);
  }

  #becomePlain(text) {
    [this.#fence] = /^ {0,3}(?:`{3,}|~{3,})/.exec(text) ?? [""];
    this.#plain = document.createElement(this.#fence ? "pre" : "p");
    this.#plain.className = "plain";
    if (this.#fence) {
      this.#plain.tabIndex = 0;
      text = text.slice(text.indexOf("\n") + 1);
    }
    this.#last.replaceChildren();
    this.#last.before(this.#plain);
    this.#tail = text;
    this.#drawPlain();
  }

  /** Adds to a long block, until its end: a blank line or, of code, its closing fence. */
  #drawPlain() {
    const end = this.#fence ? `\n${this.#fence.trimStart()}` : "\n\n";
    const found = this.#tail.indexOf(end);
    // The end may have come in part.
    const held = this.#ended && !this.#pending ? 0 : end.length - 1;
    addPlain(this.#plain, this.#tail.slice(0, found < 0 ? Math.max(0, this.#tail.length - held) : found));
    this.#tail = found < 0 ? this.#tail.slice(Math.max(0, this.#tail.length - held)) : this.#tail.slice(found + end.length);
    if (found >= 0) this.#plain = null;
  }

  #finish() {
    if (this.#plain) this.#drawPlain();
    this.#last.replaceChildren();
    for (const token of lex(this.#tail) ?? []) this.#keep(token);
    this.#last.remove();
    this.settle();
  }
}

/** The blocks of a text; null = they are nested so deeply that their parser gives up. */
function lex(text) {
  try {
    return marked.lexer(text);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

function firstLineLength(text) {
  const end = text.indexOf("\n");
  return end < 0 ? text.length : end;
}

function render(tokens) {
  return DOMPurify.sanitize(marked.parser(tokens), SAFE);
}
