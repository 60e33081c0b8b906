// The client in Node -> gateways, over connections that are cut: goes on, attaches, leaves; prints what it saw as JSON.
//
// node resume.mjs TRANSPORT URL WORDS
import {TgClient} from "@tokengrid/client";

const [transport, url, words] = process.argv.slice(2);
const seen = {retried: []};
const client = new TgClient({url, transport, retries: 1000, onRetry: error => seen.retried.push(error.type)});

async function read(records) {
  let text = "";
  for await (const record of records) text += record.response ?? "";
  return text;
}

const place = {stream: "", after: -1};
seen.text = await read(client.textCompletion({prompt: words}, {keep: "10m", place}));
seen.over = place.over;
seen.again = await read(client.attach({stream: place.stream, after: -1}));
seen.none = await read(client.attach({stream: place.stream, after: place.after})).catch(error => error.type);
const left = client.textCompletion({prompt: "1000"}, {keep: "10m"});
await left.next();
await left.return();
await client.close();
console.log(JSON.stringify(seen));
