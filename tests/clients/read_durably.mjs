// The client of the Durable Streams protocol in Node -> a kept stream: prints all of its values as JSON.
//
// node read_durably.mjs URL LIVE, in the folder in which the client is installed
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const {stream} = createRequire(pathToFileURL(`${process.cwd()}/`))("@durable-streams/client");
const [url, live] = process.argv.slice(2);
const seen = [];

// The client repeats a request that fails, and takes a body that breaks off for the end: it gets whole bodies only.
async function fetchWhole(...asked) {
  const response = await fetch(...asked);
  if (response.status === 204 || response.headers.get("content-type").startsWith("text/event-stream")) return response;
  return new Response(await response.arrayBuffer(), response);
}

// Resolves at the stream's end; of an event stream that breaks off, the client says why.
const read = offset => new Promise(async (resolve, reject) => {
  const response = await stream({
    url, live, offset, json: true, warnOnHttp: false, fetch: fetchWhole,
    headers: {Accept: "application/json"},
    backoffOptions: {initialDelay: 10, maxDelay: 100, multiplier: 2},
  });
  response.subscribeJson(batch => {
    seen.push(...batch.items);
    offset = batch.offset;
    if (batch.streamClosed) resolve();
  });
  response.closed.catch(() => reject(offset));
});

let offset = "-1";
do {
  offset = await read(offset).catch(last => last);
} while (offset !== undefined);
console.log(JSON.stringify(seen));
