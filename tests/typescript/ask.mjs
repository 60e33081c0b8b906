// The client in Node -> a gateway: asks, stops, retries, fails; prints what it saw as JSON.
//
// node ask.mjs TRANSPORT URL TOKEN
import {Completion, TgClient, TgError} from "@tokengrid/client";

const [transport, url, token] = process.argv.slice(2);
const seen = {transports: new Set(), retried: []};
const client = new TgClient({
  url, token, transport,
  onConnection: state => seen.transports.add(state),
  onRetry: (error, seconds) => seen.retried.push([error.type, seconds >= error.retryAfter]),
});
const failure = error => error instanceof TgError ? [error.type, error.message, error.retryAfter] : error.name;

async function collect(records) {
  const whole = new Completion();
  for await (const record of records) whole.add(record);
  return whole;
}

const side = await Promise.all(["one", "two"].map(prompt => client.complete({prompt})));
seen.texts = side.map(({text}) => text);
const whole = await client.complete({prompt: "all"});
seen.whole = [whole.text, whole.reasoning, whole.inTokens, whole.outTokens, whole.finishReason, whole.turn];
seen.models = (await client.models()).map(({model}) => model);

for await (const record of client.textCompletion({prompt: "endless"})) if (record.response) break;
const stopping = new AbortController();
const stopped = client.textCompletion({prompt: "endless"}, {signal: stopping.signal});
await stopped.next();
stopping.abort();
seen.aborted = await collect(stopped).then(() => "ended", failure);
const left = client.textCompletion({prompt: "once"});
await left.next();
const waiting = left.next().then(() => "came", failure);
await left.return();
seen.left = await waiting;

seen.refused = await collect(client.textCompletion({prompt: "busy"})).then(({text}) => text, failure);
seen.once = await collect(client.textCompletion({prompt: "busy"}, {retries: 0})).then(({text}) => text, failure);
seen.wrong = await collect(client.textCompletion({temperature: 1})).then(() => "answered", failure);
seen.broken = await collect(client.textCompletion({prompt: "half"})).then(() => "answered", failure);
seen.late = await collect(client.textCompletion({prompt: "silent"}, {timeout: 0.3, retries: 0})).then(() => "answered", failure);
seen.template = [];
for await (const {text} of client.prompt({id: "text", variables: {question: "Who?"}})) seen.template.push(text);
seen.stranger = await new TgClient({url, token: "wrong", transport}).models().then(() => "listed", failure);
await client.close();
console.log(JSON.stringify({...seen, transports: [...seen.transports]}));
