// jsdom -> /docs of a gateway: opens an operation, sends a streamed example, sees it grow, stops it, types another
// model; prints what it saw.
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
const text = details.querySelector("textarea");
const body = text.value;

// Another model is typed, after the body was edited and a path with a model was opened.
text.value = JSON.stringify({...JSON.parse(body), seed: 7});
const path = document.getElementById("get_v1_models_model");
path.open = true;
path.dispatchEvent(new window.Event("toggle"));
document.getElementById("model").value = "other";
document.getElementById("model").dispatchEvent(new window.Event("change"));
const retyped = {body: text.value, path: path.querySelector("input").value};

const last = status.textContent;
console.log(JSON.stringify({operations, asked, first, last, shown: shown.textContent, body, retyped}));
process.exit(0);
