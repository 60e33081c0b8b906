// jsdom -> /docs of a gateway: opens an operation, sends a streamed example, sees it grow, stops it; prints what it saw.
//
// node visit_page.mjs FOLDER-OF-JSDOM URL OPERATION KEY
import {createRequire} from "node:module";

const [folder, url, operation, key] = process.argv.slice(2);
const {JSDOM} = createRequire(`${folder}/`)("jsdom");
const asked = [];

const {window} = await JSDOM.fromURL(`${url}docs`, {
  runScripts: "dangerously",
  resources: "usable",
  beforeParse(window) {
    // jsdom has no fetch of its own; the signals of Node's are Node's.
    Object.assign(window, {AbortController, TextDecoder, structuredClone});
    window.fetch = (target, options = {}) => {
      const absolute = new URL(target, window.location).href;
      asked.push(`${options.method ?? "GET"} ${absolute.slice(url.length - 1)}`);
      return fetch(absolute, options);
    };
  },
});
const {document} = window;

async function until(condition) {
  while (!condition()) await new Promise(resolve => setTimeout(resolve, 5));
}

await until(() => document.querySelector("details"));
document.getElementById("key").value = key;
const details = document.getElementById(operation);
details.open = true;
details.dispatchEvent(new window.Event("toggle"));
const select = details.querySelector("select");
select.value = "streamed";
select.dispatchEvent(new window.Event("change"));
const [send, stop] = details.querySelectorAll("button");
const [status, shown] = [details.querySelector(".status"), details.querySelector("pre")];
send.click();
await until(() => shown.textContent.length > 1000 || send.disabled === false);
const first = {status: status.textContent, length: shown.textContent.length, sending: send.disabled};
stop.click();
await until(() => !send.disabled);
const operations = [...document.querySelectorAll("details")].map(element => element.id);
const body = details.querySelector("textarea").value;
console.log(JSON.stringify({operations, asked, first, last: status.textContent, shown: shown.textContent, body}));
process.exit(0);
