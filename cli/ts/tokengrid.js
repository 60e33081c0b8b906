// A page or a program -> the gateway: the records of an answer as they come, over one WebSocket or over server-sent
// events. Plain ECMAScript, so that a browser takes this file as it is; its types are in tokengrid.d.ts.
// @ts-check

/** @import {AgentRequest, AgentResponse, ErrorType, Message, PromptBody, PromptResponse} from "./records.js" */
/** @import {ReasoningPart, ServedModel, TextCompletionRequest, TextCompletionResponse, TextPart, ToolCall} from "./records.js" */

/** @type {ReadonlySet<string>} */
export const RETRYABLE = new Set([
  "bus", "incomplete-stream", "rate-limited", "schema-violation", "timeout", "unavailable",
]);
const MAX_RETRIES = 3;
/** A retry waits longer by a random part of this, so that refused clients do not all return at once. It doubles. */
const SPREAD_SECONDS = 0.5;
const MAX_DOUBLINGS = 4;
const GREETING_SECONDS = 10;
/** To wait for the id of a stream that is left before its head has come. */
const STOP_SECONDS = 1;
/** Of one stream, for a slow reader; beyond it the stream ends with `slow-consumer`. */
const MAX_BUFFERED_CHARACTERS = 4 * 1024 * 1024;
const MAX_EVENT_CHARACTERS = 16 * 1024 * 1024;

/** Each failure of a call: the gateway's own, or that of the connection to it. */
export class TgError extends Error {
  /**
   * @param {ErrorType | string} type one of the closed set of docs/gateway.md
   * @param {string} message
   * @param {number | null} [retryAfter] seconds, if they are known
   * @param {number | null} [status] of HTTP, where it had one
   */
  constructor(type, message, retryAfter = null, status = null) {
    super(message);
    this.name = "TgError";
    this.type = type;
    this.retryAfter = retryAfter;
    this.status = status;
  }

  /** Whether the same request may succeed later. */
  get retryable() {
    return RETRYABLE.has(this.type);
  }
}

/** The records of one answer, added up: add each as it comes, or all at the end. */
export class Completion {
  text = "";
  reasoning = "";
  /** @type {ToolCall[]} */
  toolCalls = [];
  /** @type {number | null} */
  inTokens = null;
  /** @type {number | null} */
  outTokens = null;
  model = "";
  finishReason = "";
  /** @type {(TextPart | ReasoningPart)[]} */
  #signed = [];
  #told = 0;
  #thought = 0;

  /** @param {TextCompletionResponse} record */
  add(record) {
    if (record.in_token != null) this.inTokens = (this.inTokens ?? 0) + record.in_token;
    if (record.out_token != null) this.outTokens = (this.outTokens ?? 0) + record.out_token;
    if (record.model) this.model = record.model;
    // Of several answers to one request, this is the first.
    if (record.index) return;
    this.reasoning += record.reasoning ?? "";
    if (record.signature) {
      this.#keepText();
      const text = this.reasoning.slice(this.#thought);
      this.#signed.push({type: "reasoning", text, signature: record.signature});
      this.#thought = this.reasoning.length;
    }
    this.text += record.response ?? "";
    if (record.finish_reason) this.finishReason = record.finish_reason;
    for (const piece of record.tool_calls ?? []) {
      const call = (this.toolCalls[piece.index ?? 0] ??= {id: "", name: "", arguments: ""});
      if (piece.id) call.id = piece.id;
      if (piece.name) call.name = piece.name;
      if (piece.signature) call.signature = piece.signature;
      call.arguments += piece.arguments ?? "";
    }
  }

  /** The answer as a turn of the assistant, for `messages` of the next request. @returns {Message} */
  get turn() {
    const calls = this.toolCalls.filter(Boolean).map(call => ({...call, arguments: call.arguments || "{}"}));
    // Thinking without a signature is of no use to any provider.
    const content = this.#signed.length ? this.#parts() : this.text;
    return {role: "assistant", content, ...(calls.length ? {tool_calls: calls} : {})};
  }

  #keepText() {
    if (this.text.length > this.#told) this.#signed.push({type: "text", text: this.text.slice(this.#told)});
    this.#told = this.text.length;
  }

  #parts() {
    this.#keepText();
    return [...this.#signed];
  }
}

/** What has come of one answer and nobody has read yet. */
class Inbox {
  /** @type {any[]} */
  #records = [];
  #characters = 0;
  /** @type {unknown} */
  #error = null;
  #over = false;
  #wake = () => {};

  /** @param {Place} place of the answer */
  constructor(place) {
    this.place = place;
  }

  /** @param {any} record @param {number} characters @param {number} [number] of a record that is kept */
  put(record, characters, number) {
    if (this.#over) return;
    this.#characters += characters;
    if (this.#characters > MAX_BUFFERED_CHARACTERS && this.#records.length)
      return this.end(new TgError("slow-consumer", "the answer was not read as fast as it came"));
    this.#records.push([record, number]);
    this.#wake();
  }

  /** Only the first end counts. @param {unknown} [error] @param {number} [number] of an error that all readers get */
  end(error = null, number) {
    if (this.#over) return;
    if (!error || number !== undefined) this.place.over = true;
    [this.#over, this.#error] = [true, error];
    this.#wake();
  }

  get over() {
    return this.#over;
  }

  /** All that waits; empty at the end. @param {number} seconds until it must have come @returns {Promise<any[]>} */
  async take(seconds) {
    if (!this.#records.length && !this.#over) {
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      await new Promise(resolve => {
        this.#wake = () => resolve(null);
        timer = setTimeout(resolve, seconds * 1000);
      });
      clearTimeout(timer);
    }
    const taken = this.#records;
    [this.#records, this.#characters] = [[], 0];
    if (taken.length) return taken;
    if (this.#error) throw this.#error;
    if (!this.#over) throw new TgError("timeout", `nothing of the answer came within ${seconds} s`);
    return taken;
  }
}

/** One WebSocket, on which any number of answers come side by side. */
class Socket {
  /** @type {Map<string, Inbox>} */
  #inboxes = new Map();
  #asked = 0;

  /** @param {WebSocket} socket that is open, and knows the token */
  constructor(socket) {
    this.socket = socket;
    socket.onmessage = event => this.#take(event.data);
  }

  /** @param {URL} base @param {string} token @param {(socket: Socket) => void} onLost @returns {Promise<Socket>} */
  static open(base, token, onLost) {
    const url = new URL("api/v1/socket", base);
    url.protocol = url.protocol.replace("http", "ws");
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url);
      const timer = setTimeout(() => socket.close(), GREETING_SECONDS * 1000);
      socket.onopen = () => socket.send(JSON.stringify({type: "auth", token}));
      socket.onclose = () => {
        clearTimeout(timer);
        reject(new TgError("unavailable", `no gateway opens a WebSocket at ${base}`, 1));
      };
      socket.onmessage = event => {
        const {type, error} = JSON.parse(event.data);
        clearTimeout(timer);
        if (type !== "auth-ok") {
          reject(new TgError("unauthorized", String(error ?? "the gateway needs a valid token")));
          return socket.close();
        }
        const opened = new Socket(socket);
        socket.onclose = () => {
          opened.#lose();
          onLost(opened);
        };
        resolve(opened);
      };
    });
  }

  /** @param {object} envelope @param {Inbox} [inbox] @returns {[string, Inbox]} */
  ask(envelope, inbox = new Inbox({stream: "", after: -1})) {
    const id = `req-${++this.#asked}`;
    this.#inboxes.set(id, inbox);
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({id, ...envelope}));
    else this.#lose();
    return [id, inbox];
  }

  /** Its reader has left; if the answer is not over, it is cancelled. Returns whether it is. @param {string} id */
  leave(id) {
    if (!this.#inboxes.delete(id) || this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify({id, cancel: true}));
    return true;
  }

  /** @param {string} data */
  #take(data) {
    const {id, response, error, complete, stream, offset} = JSON.parse(data);
    const inbox = this.#inboxes.get(id);
    // Of an answer that was left, what the gateway sent before it read the cancel still comes.
    if (!inbox) return;
    if (complete) this.#inboxes.delete(id);
    if (stream) inbox.place.stream = stream;
    if (error) return inbox.end(errorOf(error), offset);
    if (response) inbox.put(response, data.length, offset);
    if (complete) inbox.end();
  }

  #lose() {
    for (const inbox of this.#inboxes.values())
      inbox.end(new TgError("incomplete-stream", "the connection to the gateway broke off; ask again", 1));
    this.#inboxes.clear();
  }
}

/**
 * @typedef {object} ClientOptions
 * @property {string | URL} [url] the gateway's; in a page, that of the page if it is absent
 * @property {string} [token] the bearer token
 * @property {"auto" | "socket" | "sse"} [transport] "auto": a WebSocket, and events where there can be none
 * @property {number} [timeout] seconds to the first record of an answer, and between two
 * @property {number} [retries] how often a call is repeated before its first record, after an error that is
 *   `retryable`, not before its `retryAfter`. Absent: after `rate-limited` as long as `timeout` lasts, and three times
 *   after other errors. 0 = never
 * @property {(error: TgError, seconds: number) => void} [onRetry] called before each wait
 * @property {(state: "socket" | "lost" | "sse") => void} [onConnection] called when a WebSocket is open or lost, and when
 *   events take its place
 */
/**
 * @typedef {object} Place where the reader of an answer is
 * @property {string} stream the id under which the gateway keeps the answer; "" = it does not, or has not said so yet
 * @property {number} after the number of the last record that has come; -1 = none
 * @property {boolean} [over] whether nothing follows
 */
/**
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal] stops the answer, down to the provider
 * @property {string} [flow] absent: the flow of the request's model, or `default`
 * @property {number} [timeout] in place of the client's
 * @property {number} [retries] in place of the client's
 * @property {string} [keep] for how long the gateway keeps the answer, such as "10m": when the connection is lost, it
 *   goes on over another one, as often as a call is repeated
 * @property {Place} [place] is kept up to date as the records come, for `attach`
 */

/** A gateway's client; it serves any number of answers side by side. Leaving an answer early stops the model. */
export class TgClient {
  /** @type {Promise<Socket> | null} */
  #socket = null;
  #closed = false;
  #base;
  #options;

  /** @param {ClientOptions} [options] */
  constructor(options = {}) {
    this.#base = new URL("./", options.url ?? globalThis.location?.href ?? "http://localhost:8888/");
    this.#options = {token: "", transport: "auto", timeout: 300, ...options};
  }

  /** @param {TextCompletionRequest} request @param {CallOptions} [options] */
  textCompletion(request, options) {
    return /** @type {AsyncGenerator<TextCompletionResponse, void, void>} */ (
      this.records("text-completion", request, options)
    );
  }

  /** @param {PromptBody} request @param {CallOptions} [options] */
  prompt(request, options) {
    return /** @type {AsyncGenerator<PromptResponse, void, void>} */ (this.records("prompt", request, options));
  }

  /** @param {AgentRequest} request @param {CallOptions} [options] */
  agent(request, options) {
    return /** @type {AsyncGenerator<AgentResponse, void, void>} */ (this.records("agent", request, options));
  }

  /** The whole answer of a model. @param {TextCompletionRequest} request @param {CallOptions} [options] */
  async complete(request, options) {
    const whole = new Completion();
    for await (const record of this.textCompletion(request, options)) whole.add(record);
    return whole;
  }

  /**
   * Go on with an answer that is kept, as with one that was just asked for: leaving it stops the model.
   * @param {Place} place @param {CallOptions} [options] @returns {AsyncGenerator<any, void, void>}
   */
  attach(place, options) {
    return this.records("", {}, {...options, place});
  }

  /** The models that can be asked now. @returns {Promise<ServedModel[]>} */
  async models() {
    const socket = await this.#find();
    if (!socket) return (await (await this.#ask("api/v1/models", {})).json()).models;
    const [, inbox] = socket.ask({service: "models", request: {}});
    return (await inbox.take(this.#options.timeout))[0][0].models;
  }

  /** Open the WebSocket now, so that the first answer need not wait for it. */
  async connect() {
    await this.#open();
  }

  /** @returns {Promise<Socket>} */
  #open() {
    if (this.#closed) throw new TgError("bad-request", "the client is closed");
    if (this.#socket) return this.#socket;
    const opening = Socket.open(this.#base, this.#options.token, () => {
      this.#socket = null;
      if (!this.#closed) this.#options.onConnection?.("lost");
    });
    this.#socket = opening;
    opening.then(() => this.#options.onConnection?.("socket"), () => { this.#socket = null; });
    return opening;
  }

  /** Close the connection; answers that still come end with an error. */
  async close() {
    this.#closed = true;
    await this.#socket?.then(({socket}) => socket.close(), () => {});
  }

  /**
   * The records of any service's answer, as they come. Iterate them with `for await`; a `break` stops the service.
   * @param {string} service @param {object} request @param {CallOptions} [options]
   * @returns {AsyncGenerator<any, void, void>}
   */
  records(service, request, options = {}) {
    const leaving = new AbortController();
    const signal = options.signal ? AbortSignal.any([leaving.signal, options.signal]) : leaving.signal;
    const place = options.place ?? {stream: "", after: -1};
    const records = this.#retry(service, {...request, streaming: true}, {...this.#options, ...options, place, signal});
    const leave = records.return.bind(records);
    // Otherwise it would wait for the next record.
    records.return = value => {
      leaving.abort();
      return leave(value);
    };
    return records;
  }

  /** @param {string} service @param {object} request @param {any} options @returns {AsyncGenerator<any, void, void>} */
  async *#retry(service, request, options) {
    const {place} = options;
    let [begun, isLost, retries, counted, start] = [Boolean(place.stream), false, 0, 0, Date.now()];
    try {
      for (;;) {
        try {
          for await (const record of this.#attempt(service, request, options)) {
            begun = true;
            yield record;
            [retries, counted, start] = [0, 0, Date.now()];
          }
          return;
        } catch (error) {
          if (!(error instanceof TgError)) throw error;
          counted += Number(options.retries !== undefined || error.type !== "rate-limited");
          const spread = SPREAD_SECONDS * 2 ** Math.min(retries++, MAX_DOUBLINGS);
          const wait = (error.retryAfter ?? 0) + Math.random() * spread;
          const late = Date.now() + wait * 1000 >= start + options.timeout * 1000;
          isLost = error.type !== "timeout";
          const isFinal = (begun && !goesOn(place)) || !error.retryable;
          if (isFinal || counted > (options.retries ?? MAX_RETRIES) || late) throw error;
          isLost = false;
          options.onRetry?.(error, wait);
          await sleep(wait, options.signal);
        }
      }
    } finally {
      // Who leaves stops the model; who has lost the connection for good may come back.
      if (!isLost && goesOn(place)) await this.#cancel(place);
    }
  }

  /** @param {Place} place */
  async #cancel(place) {
    await this.#fetch(`v1/streams/${encodeURIComponent(place.stream)}/cancel`, {method: "POST"}).catch(() => {});
    place.over = true;
  }

  /** @param {string} service @param {object} request @param {any} options @returns {AsyncGenerator<any, void, void>} */
  async *#attempt(service, request, options) {
    const {signal, flow, timeout, keep, place} = options;
    signal.throwIfAborted();
    const socket = await this.#find();
    const isAttached = goesOn(place);
    if (!isAttached) Object.assign(place, {stream: "", after: -1, over: false});
    const received = new Inbox(place);
    const envelope = isAttached ? {attach: place.stream, offset: place.after} : {service, flow, request, keep};
    const id = socket ? socket.ask(envelope, received)[0] : "";
    const asking = new AbortController();
    const stop = () => received.end(signal.reason);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    const head = socket ? null : this.#send(envelope, place, asking.signal);
    if (head) this.#listen(head, received);
    try {
      for (let records = await received.take(timeout); records.length; records = await received.take(timeout))
        for (const [record, number] of records) {
          place.after = number ?? place.after;
          yield record;
        }
    } finally {
      signal.removeEventListener("abort", stop);
      if (keep && !isAttached) {
        // Its head is on the way: without its id, nobody could stop it.
        const timer = setTimeout(() => asking.abort(), STOP_SECONDS * 1000);
        await head?.catch(() => {});
        clearTimeout(timer);
      }
      asking.abort();
      // It does not stop an answer that others may read, too.
      if (socket?.leave(id) && !isAttached) place.over = true;
    }
  }

  /** The socket; null = ask by HTTP. @returns {Promise<Socket | null>} */
  async #find() {
    const {transport} = this.#options;
    if (transport !== "sse" && typeof WebSocket !== "undefined") {
      try {
        return await this.#open();
      } catch (error) {
        if (transport === "socket" || !(error instanceof TgError) || error.type !== "unavailable") throw error;
      }
    }
    return null;
  }

  /**
   * Ask by HTTP as by a socket. The response has come as far as its head.
   * @param {any} envelope @param {Place} place @param {AbortSignal} signal
   */
  async #send({service, request, flow, keep, attach, offset}, place, signal) {
    if (attach) return this.#ask(`v1/streams/${encodeURIComponent(attach)}?offset=${offset}`, {signal});
    const path = flow === undefined ? service : `flow/${encodeURIComponent(flow)}/service/${service}`;
    const answer = await this.#ask(`api/v1/${path}`, {
      method: "POST", signal, body: JSON.stringify(request),
      headers: {
        "Content-Type": "application/json", Accept: "text/event-stream, application/json",
        ...(keep === undefined ? {} : {"X-Tokengrid-Keep": keep}),
      },
    });
    const stream = answer.headers.get("X-Stream-Id") ?? "";
    if (stream.startsWith("ks-")) place.stream = stream;
    return answer;
  }

  /** Put the events that come into the inbox. @param {Promise<Response>} head @param {Inbox} inbox */
  async #listen(head, inbox) {
    try {
      const answer = await head;
      if (answer.status === 204) return inbox.end();
      for await (const [data, number] of eventsOf(answer)) {
        const record = JSON.parse(data);
        if (record.error) return inbox.end(errorOf(record.error), number);
        inbox.put(record, data.length, number);
        if (record.end_of_stream || record.end_of_dialog) return inbox.end();
      }
      throw new TgError("incomplete-stream", "the answer broke off before its end; ask again");
    } catch (error) {
      inbox.end(error instanceof TgError ? error : new TgError("incomplete-stream", "the answer broke off; ask again"));
    }
  }

  /** @param {string} path @param {RequestInit} init */
  async #ask(path, init) {
    const answer = await this.#fetch(path, init);
    this.#options.onConnection?.("sse");
    return answer;
  }

  /** @param {string} path @param {RequestInit} init */
  async #fetch(path, init) {
    const {token} = this.#options;
    const headers = {...init.headers, ...(token ? {Authorization: `Bearer ${token}`} : {})};
    let answer;
    try {
      answer = await fetch(new URL(path, this.#base), {...init, headers, cache: "no-store", credentials: "same-origin"});
    } catch {
      throw new TgError("unavailable", `no gateway answers at ${this.#base}`, 1);
    }
    if (answer.ok) return answer;
    const body = await answer.json().catch(() => ({}));
    const unknown = {
      type: answer.status === 503 ? "unavailable" : "protocol", message: `the gateway answers with status ${answer.status}`,
      retry_after: Number(answer.headers.get("Retry-After")) || null,
    };
    throw errorOf({...unknown, ...body.error}, answer.status);
  }
}

/** @param {Place} place whether another connection can go on from there */
function goesOn(place) {
  return Boolean(place.stream) && !place.over;
}

/**
 * The data and the number of each event of a body.
 * @param {Response} answer @returns {AsyncGenerator<[string, number?], void, void>}
 */
async function* eventsOf(answer) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let left = "";
  /** @type {number | undefined} */
  let number;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (left + decoder.decode(part.value, {stream: true})).split("\n");
    left = lines.pop() ?? "";
    if (left.length > MAX_EVENT_CHARACTERS) throw new TgError("protocol", "an event of the gateway has no end");
    for (const line of lines) {
      if (line.startsWith("id:")) number = Number(line.slice("id:".length));
      if (!line.startsWith("data:")) continue;
      yield [line.slice("data:".length).trim(), number];
      number = undefined;
    }
  }
}

/** @param {any} error as it is on the wire @param {number | null} [status] @returns {TgError} */
function errorOf({type = "llm-error", message = "no message was given", retry_after = null}, status = null) {
  // On a socket a key that is no longer valid has a word of its own.
  return new TgError(type === "auth-required" ? "unauthorized" : type, message, retry_after, status);
}

/** @param {number} seconds @param {AbortSignal} signal @returns {Promise<void>} */
function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal.addEventListener("abort", stop);
  });
}
