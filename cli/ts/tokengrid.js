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

  /** @param {any} record @param {number} characters */
  put(record, characters) {
    if (this.#over) return;
    this.#characters += characters;
    if (this.#characters > MAX_BUFFERED_CHARACTERS && this.#records.length)
      return this.end(new TgError("slow-consumer", "the answer was not read as fast as it came"));
    this.#records.push(record);
    this.#wake();
  }

  /** Only the first end counts. @param {unknown} [error] */
  end(error = null) {
    if (this.#over) return;
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

  /** @param {object} envelope @returns {[string, Inbox]} */
  ask(envelope) {
    const id = `req-${++this.#asked}`;
    const inbox = new Inbox();
    this.#inboxes.set(id, inbox);
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({id, ...envelope}));
    else this.#lose();
    return [id, inbox];
  }

  /** Its reader has left; if the answer is not over, it is cancelled. @param {string} id */
  leave(id) {
    if (this.#inboxes.delete(id) && this.socket.readyState === WebSocket.OPEN)
      this.socket.send(JSON.stringify({id, cancel: true}));
  }

  /** @param {string} data */
  #take(data) {
    const {id, response, error, complete} = JSON.parse(data);
    const inbox = this.#inboxes.get(id);
    // Of an answer that was left, what the gateway sent before it read the cancel still comes.
    if (!inbox) return;
    if (complete) this.#inboxes.delete(id);
    if (error) return inbox.end(errorOf(error));
    inbox.put(response, data.length);
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
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal] stops the answer, down to the provider
 * @property {string} [flow] absent: the flow of the request's model, or `default`
 * @property {number} [timeout] in place of the client's
 * @property {number} [retries] in place of the client's
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

  /** The models that can be asked now. @returns {Promise<ServedModel[]>} */
  async models() {
    const socket = await this.#find();
    if (!socket) return (await (await this.#fetch("api/v1/models", {})).json()).models;
    const [, inbox] = socket.ask({service: "models", request: {}});
    return (await inbox.take(this.#options.timeout))[0].models;
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
    const records = this.#retry(service, {...request, streaming: true}, {...this.#options, ...options, signal});
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
    const end = Date.now() + options.timeout * 1000;
    for (let retries = 0, counted = 0; ; retries++) {
      let begun = false;
      try {
        for await (const record of this.#attempt(service, request, options)) {
          begun = true;
          yield record;
        }
        return;
      } catch (error) {
        if (!(error instanceof TgError)) throw error;
        counted += Number(options.retries !== undefined || error.type !== "rate-limited");
        const spread = SPREAD_SECONDS * 2 ** Math.min(retries, MAX_DOUBLINGS);
        const wait = (error.retryAfter ?? 0) + Math.random() * spread;
        const late = Date.now() + wait * 1000 >= end;
        if (begun || !error.retryable || counted > (options.retries ?? MAX_RETRIES) || late) throw error;
        options.onRetry?.(error, wait);
        await sleep(wait, options.signal);
      }
    }
  }

  /** @param {string} service @param {object} request @param {any} options @returns {AsyncGenerator<any, void, void>} */
  async *#attempt(service, request, options) {
    const {signal, flow, timeout} = options;
    signal.throwIfAborted();
    const socket = await this.#find();
    /** @type {[string, Inbox]} */
    const [id, received] = socket ? socket.ask({service, flow, request}) : ["", new Inbox()];
    const asking = new AbortController();
    const stop = () => received.end(signal.reason);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    if (!socket) this.#listen(service, request, flow, received, asking.signal);
    try {
      for (let records = await received.take(timeout); records.length; records = await received.take(timeout))
        yield* records;
    } finally {
      signal.removeEventListener("abort", stop);
      asking.abort();
      socket?.leave(id);
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
   * Ask by HTTP, and put the events that come into the inbox.
   * @param {string} service @param {object} request @param {string | undefined} flow
   * @param {Inbox} inbox @param {AbortSignal} signal
   */
  async #listen(service, request, flow, inbox, signal) {
    const path = flow === undefined ? service : `flow/${encodeURIComponent(flow)}/service/${service}`;
    try {
      const answer = await this.#fetch(`api/v1/${path}`, {
        method: "POST", signal, body: JSON.stringify(request),
        headers: {"Content-Type": "application/json", Accept: "text/event-stream, application/json"},
      });
      for await (const data of eventsOf(answer)) {
        const record = JSON.parse(data);
        if (record.error) throw errorOf(record.error);
        inbox.put(record, data.length);
        if (record.end_of_stream || record.end_of_dialog) return inbox.end();
      }
      throw new TgError("incomplete-stream", "the answer broke off before its end; ask again");
    } catch (error) {
      inbox.end(error instanceof TgError ? error : new TgError("incomplete-stream", "the answer broke off; ask again"));
    }
  }

  /** @param {string} path @param {RequestInit} init */
  async #fetch(path, init) {
    const {token, onConnection} = this.#options;
    const headers = {...init.headers, ...(token ? {Authorization: `Bearer ${token}`} : {})};
    let answer;
    try {
      answer = await fetch(new URL(path, this.#base), {...init, headers, cache: "no-store", credentials: "same-origin"});
    } catch {
      throw new TgError("unavailable", `no gateway answers at ${this.#base}`, 1);
    }
    if (answer.ok) {
      onConnection?.("sse");
      return answer;
    }
    const body = await answer.json().catch(() => ({}));
    const unknown = {
      type: answer.status === 503 ? "unavailable" : "protocol", message: `the gateway answers with status ${answer.status}`,
      retry_after: Number(answer.headers.get("Retry-After")) || null,
    };
    throw errorOf({...unknown, ...body.error}, answer.status);
  }
}

/** The data of each event of a body. @param {Response} answer @returns {AsyncGenerator<string, void, void>} */
async function* eventsOf(answer) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let left = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (left + decoder.decode(part.value, {stream: true})).split("\n");
    left = lines.pop() ?? "";
    if (left.length > MAX_EVENT_CHARACTERS) throw new TgError("protocol", "an event of the gateway has no end");
    for (const line of lines) if (line.startsWith("data:")) yield line.slice("data:".length).trim();
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
