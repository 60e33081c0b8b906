// Written by scripts/typescript.py from schema/tg_schema: do not edit.

export type ErrorType = "access-denied" | "bad-request" | "bus" | "cancelled" | "content-filter" | "context-length-exceeded" | "incomplete-stream" | "internal" | "llm-error" | "not-found" | "protocol" | "provider-auth" | "rate-limited" | "schema-violation" | "slow-consumer" | "timeout" | "too-large" | "unauthorized" | "unavailable";

/** A question to an agent. A plain peer knows all fields but `pattern`. */
export interface AgentRequest {
  question?: string | null;
  state?: string | null;
  group?: readonly (string)[] | null;
  history?: readonly (AgentStep)[] | null;
  user?: string | null;
  streaming?: boolean | null;
  pattern?: string | null;
}

/** A piece of a dialog. A plain peer knows the fields from `chunk_type` to `error`, which is set on an "error". */
export interface AgentResponse {
  chunk_type?: "action" | "answer" | "error" | "observation" | "thought" | null;
  content?: string | null;
  end_of_message?: boolean | null;
  end_of_dialog?: boolean | null;
  error?: Error | null;
  message_id?: string | null;
  path?: readonly (string)[];
  tool?: string | null;
  arguments?: string | null;
  call_id?: string | null;
  in_token?: number | null;
  out_token?: number | null;
  model?: string | null;
  finish_reason?: "content_filter" | "length" | "stop" | "tool_calls" | null;
}

/** One finished round of an agent's reasoning. */
export interface AgentStep {
  thought?: string | null;
  action?: string | null;
  arguments?: {[name: string]: string} | null;
  observation?: string | null;
  user?: string | null;
}

/** An error on the wire. `type` is one of the table above; `retry_after` is in seconds. */
export interface Error {
  type?: string | null;
  message?: string | null;
  retry_after?: number | null;
  clock?: string;
  tokens?: number;
  maximum?: number;
}

/** The parts of a request that only one vendor's API knows, passed on unchanged to providers that announce it. */
export interface Foreign {
  dialect: string;
  fields?: {[name: string]: unknown};
  tools?: readonly ({[name: string]: unknown})[];
  betas?: readonly (string)[];
}

/** A part that only one vendor's API knows; `value` is its JSON in that API's format, such as "anthropic". */
export interface ForeignPart {
  type: "foreign";
  dialect: string;
  value: {[name: string]: unknown};
}

/** An image in a message: exactly one of `data` (base64) and `url`. */
export interface ImagePart {
  type: "image";
  media_type?: string;
  data?: string | null;
  url?: string | null;
  cache?: "1h" | "5m" | null;
}

/** One turn. */
export interface Message {
  role: "assistant" | "developer" | "system" | "tool" | "user";
  content?: string | readonly (TextPart | ImagePart | ReasoningPart | ForeignPart)[];
  tool_calls?: readonly (ToolCall)[];
  tool_call_id?: string | null;
  name?: string | null;
  error?: boolean;
  cache?: "1h" | "5m" | null;
}

/** One model of a provider's list. */
export interface ModelInfo {
  id: string;
  owned_by?: string;
  created?: number;
  context_length?: number;
  vocabulary?: number;
  dimensions?: number;
  end_ids?: readonly (number)[];
}

/** The body of a request for a prompt; `variables` or `terms`. */
export interface PromptBody {
  id?: string | null;
  variables?: {[name: string]: unknown} | null;
  terms?: {[name: string]: string} | null;
  streaming?: boolean | null;
}

/** `error`, `text` or `object` (JSON text). Usage and model as in text completion. */
export interface PromptResponse {
  error?: Error | null;
  text?: string | null;
  object?: string | null;
  end_of_stream?: boolean | null;
  in_token?: number | null;
  out_token?: number | null;
  model?: string | null;
  finish_reason?: "content_filter" | "length" | "stop" | "tool_calls" | null;
}

/** How much the model should think: by effort, by the most tokens it may think, or by both. */
export interface Reasoning {
  effort?: "high" | "low" | "max" | "medium" | "minimal" | "none" | "xhigh" | null;
  budget?: number | null;
}

/** The model's thinking in an earlier turn of the assistant. */
export interface ReasoningPart {
  type: "reasoning";
  text?: string;
  signature?: string | null;
}

/** A model of a route, as the process that answers sees it. */
export interface RoutedModel {
  model: string;
  flow: string;
  state: "absent" | "cooling" | "ready" | "trying";
  reason?: string;
  seconds?: number;
  lacks?: readonly (string)[];
}

/** Sampling parameters; None = the provider's default. */
export interface Sampling {
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  max_tokens?: number | null;
  stop?: readonly (string)[];
  seed?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  logprobs?: number | null;
  n?: number | null;
  best_of?: number | null;
  min_p?: number | null;
  typical_p?: number | null;
  repetition_penalty?: number | null;
  length_penalty?: number | null;
  logit_bias?: {[name: string]: number} | null;
  min_tokens?: number | null;
  ignore_eos?: boolean;
  stop_ids?: readonly (number)[];
  keep_stop?: boolean;
  prompt_logprobs?: number | null;
  end_token?: boolean;
  packed_bias?: string | null;
  packed_floats?: string | null;
}

/** A model that can be asked now. */
export interface ServedModel {
  model: string;
  flow: string;
  features?: readonly (string)[];
  alias_of?: string | null;
  loading?: boolean;
  running?: number;
  load?: number | null;
  route?: readonly (RoutedModel)[];
}

/** All models that can be asked, as `GET /api/v1/models` answers. */
export interface ServedModels {
  models?: readonly (ServedModel)[];
}

/** A plain peer sends only `system`, `prompt` and `streaming`; the rest is optional, and written if it is set. */
export interface TextCompletionRequest {
  system?: string | null;
  prompt?: string | null;
  streaming?: boolean | null;
  model?: string | null;
  sampling?: Sampling | null;
  response_format?: string | null;
  schema?: {[name: string]: unknown} | null;
  messages?: readonly (Message)[];
  tools?: readonly (Tool)[];
  tool_choice?: string | null;
  operation?: string | null;
  reasoning?: Reasoning | null;
  parallel_tool_calls?: boolean | null;
  allowed_tools?: readonly (string)[];
  regex?: string | null;
  choice?: readonly (string)[];
  raw?: boolean;
  prompt_ids?: readonly (number)[];
  scored?: readonly (number)[];
  suffix?: string | null;
  echo?: boolean;
  adapter?: string | null;
  user?: string | null;
  priority?: number | null;
  cache_key?: string | null;
  texts?: readonly (string)[];
  foreign?: Foreign | null;
  id_lists?: readonly (readonly (number)[])[];
  token_texts?: boolean;
  pooling?: "last" | "mean" | null;
  dimensions?: number | null;
  truncate?: boolean;
  purpose?: "document" | "query" | null;
  max_prompt_tokens?: number | null;
  sheddable?: boolean;
  adapter_path?: string | null;
  schema_name?: string | null;
  schema_description?: string | null;
  schema_strict?: boolean;
  continuation?: readonly (string)[];
}

/** A piece of an answer, or the result of another operation, or an error, which is the last record. */
export interface TextCompletionResponse {
  error?: Error | null;
  response?: string | null;
  end_of_stream?: boolean | null;
  models?: readonly (ModelInfo)[];
  ids?: readonly (number)[];
  vectors?: readonly (readonly (number)[])[];
  continued_at?: readonly (number)[];
  model?: string | null;
  index?: number;
  reasoning?: string | null;
  tokens?: readonly (Token)[];
  tool_calls?: readonly (ToolCallDelta)[];
  finish_reason?: "content_filter" | "length" | "stop" | "tool_calls" | null;
  in_token?: number | null;
  out_token?: number | null;
  cached_token?: number | null;
  reasoning_token?: number | null;
  cache_write_token?: number | null;
  signature?: string | null;
  stopped_by?: string | number | null;
  seed?: number | null;
  prompt_tokens?: readonly (Token)[];
}

/** A piece of a message's text. */
export interface TextPart {
  type: "text";
  text: string;
  cache?: "1h" | "5m" | null;
}

/** One token. */
export interface Token {
  id: number;
  text: string;
  logprob?: number | null;
  top?: readonly (readonly (unknown)[])[];
  top_texts?: readonly (string)[];
  raw_bytes?: string | null;
  special?: boolean;
}

/** A tool that the model may call; `parameters` is the JSON schema of its arguments. */
export interface Tool {
  name: string;
  description?: string;
  parameters?: {[name: string]: unknown};
  strict?: boolean;
  cache?: "1h" | "5m" | null;
}

/** One call that the model made; `arguments` is JSON text, as the model wrote it. */
export interface ToolCall {
  id: string;
  name: string;
  arguments?: string;
  signature?: string | null;
  cache?: "1h" | "5m" | null;
}

/** A piece of a call while the model writes it: `id` and `name` on the first piece, `arguments` concatenated. */
export interface ToolCallDelta {
  index?: number;
  id?: string | null;
  name?: string | null;
  arguments?: string;
  signature?: string | null;
}
