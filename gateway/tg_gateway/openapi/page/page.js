// openapi.json -> a form for each operation; an answer is shown piece by piece, as it comes.
"use strict";

const MAX_SHOWN_CHARACTERS = 1_000_000;
const byId = id => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  // Text is set as text, never as HTML: an answer may contain any.
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function showDocument(api) {
  const texts = `${api.info.description} Version ${api.info.version}.`.split("`");
  byId("about").append(...texts.map((text, index) => index % 2 ? make("code", {textContent: text}) : text));
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(item)) {
      const group = operation.tags[0];
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(makeOperation(method.toUpperCase(), path, operation));
    }
  for (const [group, operations] of groups) byId("operations").append(make("h2", {textContent: group}), ...operations);
}

function makeOperation(method, path, operation) {
  const code = make("code", {textContent: `${method} ${path}`});
  const details = make("details", {id: operation.operationId}, make("summary", {}, code, operation.summary));
  // A form is made when it is wanted first: there are many.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(makeForm(method, path, operation));
  });
  return details;
}

function makeForm(method, path, operation) {
  const inside = make("div", {className: "inside"});
  const statuses = Object.entries(operation.responses).map(([status, {description}]) => `${status} ${description}`);
  inside.append(make("p", {className: "statuses", textContent: statuses.join(", ")}));
  if ("101" in operation.responses) {
    inside.append(make("p", {textContent: "This is a WebSocket: open it with a program, this page does not."}));
    return inside;
  }
  const inputs = operation.parameters.map(parameter => makeInput(parameter));
  const body = operation.requestBody ? makeBody(operation.requestBody.content["application/json"].examples) : null;
  const send = make("button", {textContent: "Send"});
  const stop = make("button", {textContent: "Stop", disabled: true});
  const status = make("p", {className: "status", role: "status"});
  const shown = make("pre");
  send.addEventListener("click", async () => {
    const asking = new AbortController();
    stop.onclick = () => asking.abort();
    [send.disabled, stop.disabled, status.textContent, shown.textContent] = [true, false, "asked", ""];
    try {
      const request = {method, signal: asking.signal, headers: {}, cache: "no-store", credentials: "omit"};
      const target = fill(path, inputs, request.headers);
      const key = byId("key").value;
      if (key) request.headers.Authorization = `Bearer ${key}`;
      if (body) {
        request.headers["Content-Type"] = "application/json";
        request.body = body.value;
      }
      await ask(target, request, status, shown);
    } catch (error) {
      status.textContent += asking.signal.aborted ? ", stopped" : `, broken off: ${error.message}`;
    } finally {
      [send.disabled, stop.disabled] = [false, true];
    }
  });
  inside.append(...inputs.map(({label}) => label), ...(body ? [...body.choice, body.text] : []));
  inside.append(send, stop, status, shown);
  return inside;
}

function makeInput(parameter) {
  const [example] = Object.values(parameter.examples ?? {});
  const input = make("input", {value: example?.value ?? "", title: parameter.description ?? ""});
  if (parameter.name === "model") followModel(() => { input.value = byId("model").value || (example?.value ?? ""); });
  return {parameter, input, label: make("label", {}, `${parameter.name} `, input)};
}

function makeBody(examples) {
  const names = Object.keys(examples);
  const text = make("textarea", {rows: 8, spellcheck: false, ariaLabel: "Body"});
  const select = make("select", {}, ...names.map(name => make("option", {textContent: name})));
  const choose = () => {
    const example = examples[select.value].value;
    const model = byId("model").value;
    text.value = JSON.stringify("model" in example && model ? {...example, model} : example, null, 2);
  };
  select.addEventListener("change", choose);
  if (names.length) choose();
  followModel(() => {
    // What was written stays, but for the model.
    const body = parse(text.value);
    const model = byId("model").value || examples[select.value]?.value.model;
    if (model && body && "model" in body) text.value = JSON.stringify({...body, model}, null, 2);
  });
  const choice = names.length ? [make("label", {}, "Example ", select)] : [];
  return {choice, text, get value() { return text.value; }};
}

function followModel(change) {
  byId("model").addEventListener("change", change);
  change();
}

function parse(text) {
  try {
    const body = JSON.parse(text);
    return typeof body === "object" ? body : null;
  } catch {
    return null;
  }
}

function fill(path, inputs, headers) {
  const query = new URLSearchParams();
  for (const {parameter, input} of inputs) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value && parameter.in === "query") query.set(parameter.name, input.value);
    else if (input.value && parameter.in === "header") headers[parameter.name] = input.value;
  }
  // Without its first slash: relative to this page, which may be behind a prefix.
  return path.slice(1) + (query.size ? `?${query}` : "") || "./";
}

async function ask(target, request, status, shown) {
  const start = performance.now();
  const seconds = () => `${((performance.now() - start) / 1000).toFixed(2)} s`;
  const answer = await fetch(target, request);
  const kind = answer.headers.get("Content-Type") ?? "";
  const isStream = /stream|lines|ndjson/.test(kind);
  status.textContent = `${answer.status} ${kind}, first after ${seconds()}`;
  if (answer.body) {
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    let count = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const text = decoder.decode(part.value, {stream: true});
      const room = MAX_SHOWN_CHARACTERS - count;
      count += text.length;
      // A stream is followed, unless somebody has scrolled back in it.
      const isFollowed = isStream && shown.scrollTop + shown.clientHeight > shown.scrollHeight - 5;
      if (room > 0) shown.append(text.slice(0, room));
      if (isFollowed) shown.scrollTop = shown.scrollHeight;
    }
    if (count > MAX_SHOWN_CHARACTERS) shown.append(" ... (the rest is not shown)");
  }
  status.textContent += `, whole after ${seconds()}`;
}

async function start() {
  const answer = await fetch("openapi.json");
  if (answer.ok) showDocument(await answer.json());
  else byId("about").textContent = `openapi.json: ${answer.status}`;
}

start();
