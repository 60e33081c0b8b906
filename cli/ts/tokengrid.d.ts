import type { AgentRequest, AgentResponse, ErrorType, Message, PromptBody, PromptResponse } from "./records.js";
import type { ServedModel, TextCompletionRequest, TextCompletionResponse, ToolCall } from "./records.js";
/** @import {AgentRequest, AgentResponse, ErrorType, Message, PromptBody, PromptResponse} from "./records.js" */
/** @import {ReasoningPart, ServedModel, TextCompletionRequest, TextCompletionResponse, TextPart, ToolCall} from "./records.js" */
/** @type {ReadonlySet<string>} */
export declare const RETRYABLE: ReadonlySet<string>;
/** Each failure of a call: the gateway's own, or that of the connection to it. */
export declare class TgError extends Error {
    type: string;
    retryAfter: number | null;
    status: number | null;
    /**
     * @param {ErrorType | string} type one of the closed set of docs/gateway.md
     * @param {string} message
     * @param {number | null} [retryAfter] seconds, if they are known
     * @param {number | null} [status] of HTTP, where it had one
     */
    constructor(type: ErrorType | string, message: string, retryAfter?: number | null, status?: number | null);
    /** Whether the same request may succeed later. */
    get retryable(): boolean;
}
/** The records of one answer, added up: add each as it comes, or all at the end. */
export declare class Completion {
    #private;
    text: string;
    reasoning: string;
    /** @type {ToolCall[]} */
    toolCalls: ToolCall[];
    /** @type {number | null} */
    inTokens: number | null;
    /** @type {number | null} */
    outTokens: number | null;
    model: string;
    finishReason: string;
    /** @param {TextCompletionResponse} record */
    add(record: TextCompletionResponse): void;
    /** The answer as a turn of the assistant, for `messages` of the next request. @returns {Message} */
    get turn(): Message;
}
export type ClientOptions = {
    /**
     * the gateway's; in a page, that of the page if it is absent
     */
    url?: string | URL;
    /**
     * the bearer token
     */
    token?: string;
    /**
     * "auto": a WebSocket, and events where there can be none
     */
    transport?: "auto" | "socket" | "sse";
    /**
     * seconds to the first record of an answer, and between two
     */
    timeout?: number;
    /**
     * how often a call is repeated before its first record, after an error that is
     * `retryable`, not before its `retryAfter`. Absent: after `rate-limited` as long as `timeout` lasts, and three times
     * after other errors. 0 = never
     */
    retries?: number;
    /**
     * called before each wait
     */
    onRetry?: (error: TgError, seconds: number) => void;
    /**
     * called when a WebSocket is open or lost, and when
     * events take its place
     */
    onConnection?: (state: "socket" | "lost" | "sse") => void;
};
export type Place = {
    /**
     * the id under which the gateway keeps the answer; "" = it does not, or has not said so yet
     */
    stream: string;
    /**
     * the number of the last record that has come; -1 = none
     */
    after: number;
    /**
     * whether nothing follows
     */
    over?: boolean;
};
export type CallOptions = {
    /**
     * stops the answer, down to the provider
     */
    signal?: AbortSignal;
    /**
     * absent: the flow of the request's model, or `default`
     */
    flow?: string;
    /**
     * in place of the client's
     */
    timeout?: number;
    /**
     * in place of the client's
     */
    retries?: number;
    /**
     * for how long the gateway keeps the answer, such as "10m": when the connection is lost, it
     * goes on over another one, as often as a call is repeated
     */
    keep?: string;
    /**
     * is kept up to date as the records come, for `attach`
     */
    place?: Place;
};
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
export declare class TgClient {
    #private;
    /** @param {ClientOptions} [options] */
    constructor(options?: ClientOptions);
    /** @param {TextCompletionRequest} request @param {CallOptions} [options] */
    textCompletion(request: TextCompletionRequest, options?: CallOptions): AsyncGenerator<TextCompletionResponse, void, void>;
    /** @param {PromptBody} request @param {CallOptions} [options] */
    prompt(request: PromptBody, options?: CallOptions): AsyncGenerator<PromptResponse, void, void>;
    /** @param {AgentRequest} request @param {CallOptions} [options] */
    agent(request: AgentRequest, options?: CallOptions): AsyncGenerator<AgentResponse, void, void>;
    /** The whole answer of a model. @param {TextCompletionRequest} request @param {CallOptions} [options] */
    complete(request: TextCompletionRequest, options?: CallOptions): Promise<Completion>;
    /**
     * Go on with an answer that is kept, as with one that was just asked for: leaving it stops the model.
     * @param {Place} place @param {CallOptions} [options] @returns {AsyncGenerator<any, void, void>}
     */
    attach(place: Place, options?: CallOptions): AsyncGenerator<any, void, void>;
    /** The models that can be asked now. @returns {Promise<ServedModel[]>} */
    models(): Promise<ServedModel[]>;
    /** Open the WebSocket now, so that the first answer need not wait for it. */
    connect(): Promise<void>;
    /** Close the connection; answers that still come end with an error. */
    close(): Promise<void>;
    /**
     * The records of any service's answer, as they come. Iterate them with `for await`; a `break` stops the service.
     * @param {string} service @param {object} request @param {CallOptions} [options]
     * @returns {AsyncGenerator<any, void, void>}
     */
    records(service: string, request: object, options?: CallOptions): AsyncGenerator<any, void, void>;
}
