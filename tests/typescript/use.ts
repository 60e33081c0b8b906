// Ordinary use of the client, which passes `tsc --strict`: what a program of others may write.
import {TgClient, TgError, type CallOptions, type Place} from "@tokengrid/client";
import type {Message, TextCompletionRequest, Tool} from "@tokengrid/client/records";

const weather: Tool = {name: "weather", parameters: {type: "object", properties: {city: {type: "string"}}}};

export async function answer(client: TgClient, turns: readonly Message[], options: CallOptions): Promise<Message> {
  const request: TextCompletionRequest = {
    system: "Be brief.", messages: turns, tools: [weather], sampling: {temperature: 0.5, max_tokens: 100},
  };
  for await (const record of client.textCompletion(request, options)) {
    const piece: string = record.response ?? record.reasoning ?? "";
    console.log(piece, record.tool_calls?.[0]?.name, record.in_token, record.end_of_stream);
  }
  const whole = await client.complete(request, options);
  return whole.turn;
}

export async function main(): Promise<void> {
  const stopping = new AbortController();
  const client = new TgClient({
    url: "http://localhost:8888/", token: "secret", transport: "auto", timeout: 60, retries: 2,
    onRetry: (error: TgError, seconds: number) => console.log(error.type, seconds),
    onConnection: state => { if (state === "lost") stopping.abort(); },
  });
  try {
    await client.connect();
    const names: string[] = (await client.models()).map(({model, running}) => `${model} ${running ?? 0}`);
    console.log(names, await answer(client, [{role: "user", content: "Hello"}], {signal: stopping.signal}));
    for await (const {text, object} of client.prompt({id: "question", variables: {question: "Who?"}})) console.log(text ?? object);
    const place: Place = {stream: "", after: -1};
    await client.complete({prompt: "Hello"}, {keep: "10m", place});
    for await (const record of client.attach(place)) console.log(record, place.over);
    for await (const {chunk_type, content} of client.agent({question: "What is 2 * 21?", group: ["default"]}))
      if (chunk_type === "answer") console.log(content);
  } catch (error) {
    if (error instanceof TgError && error.retryable) console.log(error.retryAfter);
    else throw error;
  } finally {
    await client.close();
  }
}
