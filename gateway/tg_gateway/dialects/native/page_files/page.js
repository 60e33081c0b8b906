// The page: conversations with the served models, over the gateway's own protocol.
import {dropChat, keepChat, listChats, makeChat, requestOf, titleOf} from "./chats.js";
import {byId, make} from "./dom.js";
import {showLive} from "./live.js";
import {showControls} from "./markdown.js";
import {showRequests} from "./requests.js";
import {Completion, TgClient} from "./tokengrid.js";
import {AnswerView, makeQuestion} from "./turn_view.js";

const BASE = new URL("./", location.href);
const LIST_SECONDS = 5;
const MAX_RECONNECT_SECONDS = 5;
const MAX_SPOKEN_CHARACTERS = 1000;
/** Before an answer is read on; the pauses double, a minute in all. */
const [MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS] = [0.5, 32];
const CONNECTED = {socket: "connected", sse: "connected, without WebSocket", lost: "connection lost, trying again"};

const [log, turns, note, text] = ["log", "turns", "note", "text"].map(byId);
/** In memory alone. */
let key = "";
let client;
let chat = makeChat();
/** What is asked now: its AbortController. */
let asking = null;
let isReconnecting = false;
/** Settled once the gateway can be asked again, or nobody has a key for it. */
let ready = Promise.resolve();

// ---- connection

function openClient() {
  client?.close();
  client = new TgClient({url: BASE, token: key, onConnection: showConnection});
}

function showConnection(state) {
  const shown = byId("connection");
  shown.className = state;
  if (state === "socket" && shown.dataset.lost) say("Connected again.");
  shown.textContent = CONNECTED[state];
  shown.dataset.lost = state === "lost" ? "yes" : "";
  if (state === "lost" && !isReconnecting) ready = reconnect();
}

function pause(seconds) {
  return new Promise(resolve => setTimeout(resolve, seconds * 1000));
}

async function reconnect() {
  isReconnecting = true;
  say("The connection to the gateway is lost: it may be restarting. The page tries again.");
  for (let seconds = 0.25; ; seconds = Math.min(2 * seconds, MAX_RECONNECT_SECONDS)) {
    await pause(seconds);
    if (await client.connect().then(() => true, error => error.type === "unauthorized")) break;
  }
  isReconnecting = false;
  await start();
}

/** Shows what is served; asks for a key where one is needed. */
async function start() {
  try {
    showModels(await client.models());
  } catch (error) {
    isAboutKey(error) ? askKey() : say(error.message);
  }
}

/** A page of another origin is refused by the same type, and no key helps it. */
function isAboutKey({type, status}) {
  return type === "unauthorized" && status !== 403;
}

function askKey() {
  byId("connection").textContent = "needs a key";
  byId("key-error").textContent = key ? "The gateway does not know this key." : "";
  if (byId("key-dialog").open) return;
  byId("key-dialog").showModal();
  ready = new Promise(resolve => byId("key-dialog").addEventListener("close", resolve, {once: true}));
}

byId("key-dialog").addEventListener("close", () => {
  if (!byId("key").value) return say("Without a key nothing can be asked.");
  key = byId("key").value.trim();
  byId("key").value = "";
  openClient();
  start();
});

function showModels(models) {
  const busy = ({load, running = 0, loading}) => loading ? "loads at the first request"
    : running ? `${running} running, ${Math.round(load * 100)} % of its slots` : "idle";
  byId("served").replaceChildren(...models.map(model => make("li", {},
    make("span", {className: "name", textContent: model.model}), make("span", {className: "state", textContent: busy(model)}))));
  if (!models.length) byId("served").append(make("li", {className: "state", textContent: "no model yet"}));
  const names = models.map(({model}) => model);
  const select = byId("model");
  if ([...select.options].map(({value}) => value).join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map(name => make("option", {value: name, textContent: name})));
  select.value = names.includes(chat.model) ? chat.model : names[0] ?? "";
}

setInterval(() => {
  if (!document.hidden && byId("connection").className === "socket") client.models().then(showModels, () => {});
}, LIST_SECONDS * 1000);

// ---- what is said besides the conversation

function say(sentence) {
  note.textContent = sentence;
}

/** For screen readers: whole blocks, not each piece. */
function speak(sentence) {
  byId("spoken").append(make("p", {textContent: sentence.slice(0, MAX_SPOKEN_CHARACTERS)}));
  while (byId("spoken").childElementCount > 5) byId("spoken").firstChild.remove();
}

// ---- conversations

function keep(kept) {
  kept.time = Date.now();
  if (!keepChat(kept)) say("The browser has no room for this conversation: it is gone when the page is closed.");
  showKept();
}

function showKept() {
  byId("kept").replaceChildren(...listChats().map(each => {
    const open = make("button", {type: "button", className: "open", textContent: showControls(titleOf(each))});
    if (each.id === chat.id) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => show(each));
    const drop = make("button", {type: "button", className: "drop", textContent: "\u00d7", ariaLabel: `Delete: ${titleOf(each)}`});
    drop.addEventListener("click", () => {
      dropChat(each);
      each.id === chat.id ? show(makeChat()) : showKept();
    });
    return make("li", {}, open, drop);
  }));
}

function show(shown) {
  asking?.abort();
  chat = shown;
  const place = chat.turns.at(-1)?.place;
  const begun = place?.stream && !place.over && place.tab === window.name ? chat.turns.pop() : null;
  byId("model").value = chat.model || byId("model").options[0]?.value || "";
  byId("temperature").value = chat.temperature;
  byId("system").value = chat.system;
  turns.replaceChildren(...chat.turns.map(turn => turn.role === "user" ? makeQuestion(turn) : showAnswer(turn)));
  if (!chat.turns.length) turns.append(make("p", {className: "empty", textContent: "Ask the model something. The conversation stays in this browser."}));
  offerAgain();
  showKept();
  openMenu(false);
  log.scrollTop = log.scrollHeight;
  text.focus();
  if (begun) answer(begun);
}

function showAnswer(turn) {
  if (turn.isRunning) {
    // The page was loaded again, or closed, while it came.
    turn.problem = "The page was loaded again while this answer came: what had come by then is here, the rest is lost.";
    delete turn.isRunning;
  }
  const view = new AnswerView();
  view.addAll(turn);
  view.end(turn);
  return view.element;
}

/** The last answer, alone, can be made again. */
function offerAgain() {
  for (const each of turns.querySelectorAll(".again")) each.remove();
  if (chat.turns.at(-1)?.role !== "assistant") return;
  const again = make("button", {type: "button", className: "again", textContent: "Regenerate"});
  again.addEventListener("click", () => {
    chat.turns.pop();
    turns.lastElementChild.remove();
    answer();
  });
  turns.lastElementChild.querySelector(".actions").append(again);
}

// ---- asking

function send() {
  const content = text.value;
  if (!content.trim() || asking) return;
  turns.querySelector(".empty")?.remove();
  const turn = {role: "user", content};
  chat.turns.push(turn);
  turns.append(makeQuestion(turn));
  text.value = "";
  fitText();
  answer();
}

/** The records of an answer; of one that its flow keeps, also when the gateway restarts. */
async function* recordsOf(request, signal, place) {
  const aborted = new Promise(resolve => signal.addEventListener("abort", resolve));
  for (let seconds = MIN_PAUSE_SECONDS; ;) {
    const used = key;
    try {
      for await (const record of place.stream ? client.attach(place, {signal, retries: 0}) : client.textCompletion(request, {signal, place})) {
        seconds = MIN_PAUSE_SECONDS;
        yield record;
      }
      return;
    } catch (error) {
      const goesOn = isAboutKey(error) || error.retryable && seconds <= MAX_PAUSE_SECONDS;
      if (signal.aborted || !place.stream || place.over || !goesOn) throw error;
      if (isAboutKey(error)) askKey();
      else await Promise.race([pause(seconds), aborted]);
      seconds *= 2;
      await Promise.race([ready, aborted]);
      if (isAboutKey(error) && key === used) throw error;
    }
  }
}

/** `turn`: what had come of an answer that is kept, before the page was loaded again. */
async function answer(turn = {role: "assistant", content: "", reasoning: "", place: {stream: "", tab: window.name}}) {
  const [mine, begun, stopping, isNew] = [chat, performance.now(), new AbortController(), !turn.place.stream];
  asking = stopping;
  const [model, temperature, system] = ["model", "temperature", "system"].map(id => byId(id).value);
  if (isNew) Object.assign(mine, {model, temperature, system});
  const request = requestOf(mine);
  turn.isRunning = true;
  turn.place.after = -1;
  delete turn.problem;
  mine.turns.push(turn);
  keep(mine);
  for (const each of turns.querySelectorAll(".again")) each.remove();
  let view = new AnswerView(speak);
  view.addAll(turn);
  turns.append(view.element);
  showAsking(true);
  say("");
  speak("The answer begins.");
  log.scrollTop = log.scrollHeight;
  const whole = new Completion();
  let isBehind = !isNew;
  try {
    for await (const record of recordsOf(request, stopping.signal, turn.place)) {
      whole.add(record);
      // What had come stays until it has come again.
      if (isBehind && (whole.text.length < turn.content.length || whole.reasoning.length < turn.reasoning.length)) continue;
      const isText = record.response || record.reasoning || record.tool_calls?.length;
      if (isText && isNew) turn.first ??= performance.now() - begun;
      Object.assign(turn, {content: whole.text, reasoning: whole.reasoning, calls: whole.toolCalls});
      if (isBehind) {
        const shown = view.element;
        view = new AnswerView(speak);
        view.addAll(turn);
        shown.replaceWith(view.element);
      } else view.add(record, whole.toolCalls);
      isBehind = false;
    }
    if (whole.finishReason === "length") turn.problem = "The answer was cut off at the most tokens that it may have.";
  } catch (error) {
    turn.problem = stopping.signal.aborted ? "Stopped." : error.message;
    if (error.type === "not-found") turn.place.over = true;
    if (isAboutKey(error)) askKey();
  }
  const seconds = (performance.now() - begun - turn.first) / 1000;
  if (!isBehind) Object.assign(turn, {model: whole.model || mine.model, tokens: whole.outTokens ?? 0, turn: whole.turn});
  if (isNew && turn.tokens > 1 && seconds > 0) turn.rate = (turn.tokens - 1) / seconds;
  delete turn.isRunning;
  if (asking === stopping) asking = null;
  showAsking(Boolean(asking));
  keep(mine);
  await view.end(turn);
  if (chat !== mine) return;
  speak(turn.problem ?? "The answer is complete.");
  offerAgain();
}

function showAsking(isAsking) {
  byId("send").hidden = isAsking;
  byId("stop").hidden = !isAsking;
  turns.setAttribute("aria-busy", isAsking);
}

/** The newest text stays in view, unless somebody has scrolled back. */
let isFollowing = true;
log.addEventListener("scroll", () => {
  isFollowing = log.scrollTop + log.clientHeight > log.scrollHeight - 40;
});
new ResizeObserver(() => {
  if (isFollowing) log.scrollTop = log.scrollHeight;
}).observe(turns);

// ---- the keyboard, the buttons

function fitText() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

function openMenu(isOpen) {
  byId("menu").setAttribute("aria-expanded", isOpen);
  document.body.classList.toggle("menu-open", isOpen);
}

text.addEventListener("input", fitText);
text.addEventListener("keydown", event => {
  // While an input method composes, Enter is the input method's.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  asking?.abort();
  openMenu(false);
});
byId("composer").addEventListener("submit", event => {
  event.preventDefault();
  send();
});
byId("settings").addEventListener("submit", event => event.preventDefault());
byId("stop").addEventListener("click", () => asking?.abort());
byId("new").addEventListener("click", () => show(makeChat()));
byId("menu").addEventListener("click", event => openMenu(event.target.getAttribute("aria-expanded") === "false"));
byId("show-requests").addEventListener("click", () => {
  const asked = chat.turns.length ? requestOf(chat) : {messages: [{role: "user", content: text.value || "What is a topic?"}]};
  showRequests(byId("shown"), BASE.href, asked, Boolean(key));
  openText("The same request as code");
});

byId("watch").addEventListener("click", () => {
  showLive(BASE, key);
  openText("What the gateway does now");
});

function openText(title) {
  byId("text-title").textContent = title;
  byId("text-dialog").showModal();
}

/** Another page of a gateway with keys: the browser alone could not show the key. */
async function showKeyed(event) {
  if (!key) return;
  event.preventDefault();
  const headers = {Authorization: `Bearer ${key}`, Accept: "application/json, text/plain"};
  const answer = await fetch(event.target.href, {headers}).catch(() => null);
  byId("shown").replaceChildren(make("pre", {tabIndex: 0, textContent: await answer?.text() ?? "No gateway answers."}));
  openText(event.target.textContent);
}
for (const link of document.querySelectorAll(".keyed")) link.addEventListener("click", showKeyed);

// What has come of an answer is kept when the page goes; the next page goes on, or says what is lost.
addEventListener("pagehide", () => {
  if (asking) keepChat(chat);
});

// Of several tabs with a conversation, the one that asked goes on: leaving the answer stops it.
window.name ||= makeChat().id;
openClient();
show(listChats()[0] ?? makeChat());
start();
