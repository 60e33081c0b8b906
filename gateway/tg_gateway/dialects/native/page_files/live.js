// What the gateways do now, in the dialog: they, their queues, and their streams, each with a button that stops it.
import {byId, make} from "./dom.js";
import {showControls} from "./markdown.js";

const RETRY_MILLISECONDS = 2000;
const seconds = each => each?.toFixed(3) ?? "";
const TABLES = ["gateways", "queues", "processors", "pools", "streams"];
const GATEWAYS = ["Gateway", "Streams", "Waiting", "Tokens/s", "Errors", "State"];
const QUEUES = ["Service", "Model", "Running", "Waiting", "Tokens/s", "First p50", "p99", "Errors"];
const STREAMS = ["Service", "Model", "Key", "Seconds", "Tokens", ""];

/** Rows that stay where they are while their cells change: a button keeps the focus. */
class Table {
  #rows = new Map();
  #body = make("tbody");

  constructor(title, heads, stop) {
    this.stop = stop;
    const cells = heads.map(head => head ? make("th", {scope: "col", textContent: head}) : make("td"));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...cells)), this.#body);
    this.element = make("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: title}, table);
  }

  show(rows) {
    const names = new Set(rows.map(([name]) => name));
    for (const [name, row] of this.#rows) if (!names.has(name) && this.#rows.delete(name)) row.remove();
    for (const [name, cells] of rows) {
      const row = this.#rows.get(name) ?? this.#add(name, cells);
      cells.forEach((text, place) => { row.cells[place].textContent = showControls(String(text)); });
    }
  }

  #add(name, cells) {
    const row = make("tr", {}, ...cells.map(() => make("td")));
    if (this.stop) {
      const button = make("button", {type: "button", textContent: "Stop", ariaLabel: `Stop ${name}`});
      button.addEventListener("click", () => this.stop(name));
      row.append(make("td", {}, button));
    }
    this.#rows.set(name, row);
    this.#body.append(row);
    return row;
  }
}

/** Shows it until the dialog is closed. */
export async function showLive(base, key) {
  const leaving = new AbortController();
  byId("text-dialog").addEventListener("close", () => leaving.abort(), {once: true});
  const ask = async (path, init) => {
    const headers = {Accept: "text/event-stream, application/json", ...(key ? {Authorization: `Bearer ${key}`} : {})};
    const answer = await fetch(new URL(`api/v1/live${path}`, base), {headers, cache: "no-store", ...init});
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error?.message ?? `status ${answer.status}`);
    return answer;
  };
  const said = make("p", {className: "state", role: "status"});
  const stop = name => ask(`/streams/${encodeURIComponent(name)}/stop`, {method: "POST"})
    .catch(error => { said.textContent = error.message; });
  const [gateways, queues] = [new Table("Gateways", GATEWAYS), new Table("Queues", QUEUES)];
  const streams = new Table("Streams", STREAMS, stop);
  byId("shown").replaceChildren(gateways.element, queues.element, streams.element, said);
  const draw = now => {
    gateways.show(Object.entries(now.gateways).map(([id, each]) => [id, [
      each.name, each.streams, each.waiting, Math.round(each.tokens), each.errors,
      each.draining ? "leaving" : "ready"]]));
    queues.show(Object.entries(now.queues).map(([name, each]) => [name, [
      name, each.failing || each.model, `${each.running} of ${each.capacity}`, each.waiting, Math.round(each.tokens),
      seconds(each.first_p50), seconds(each.first_p99), each.errors]]));
    streams.show(Object.entries(now.streams).map(([name, each]) => [name, [
      `${each.flow}/${each.service}`, each.model, each.key, Math.round(now.at - each.since), each.tokens]]));
    said.textContent = `${now.totals.streams} streams; rates and errors are of the last ${Math.round(now.window)} s.`;
  };
  while (!leaving.signal.aborted) {
    try {
      for await (const now of follow(await ask("", {signal: leaving.signal}))) draw(now);
    } catch (error) { said.textContent = error.message; }
    await new Promise(resolve => setTimeout(resolve, RETRY_MILLISECONDS));
  }
}

/** The document after each event, which has the rows that have changed (RFC 7396). */
async function* follow(answer) {
  let [left, now] = ["", {}];
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (left + text).split("\n");
    left = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) {
      const change = JSON.parse(line.slice("data: ".length));
      for (const table of change.whole ? [] : TABLES) change[table] = Object.fromEntries(
        Object.entries({...now[table], ...change[table]}).filter(([, row]) => row));
      yield now = change;
    }
  }
}
