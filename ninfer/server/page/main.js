// The page: connects server, conversation and elements. Everything else is in the other files.

import { Api } from "./api.js";
import { Board } from "./board.js";
import { Answer, Conversation, Question, requestFields } from "./conversation.js";
import { $, make, say, show } from "./dom.js";
import { Images } from "./images.js";
import { Settings, themeButton } from "./settings.js";
import { AnswerView, Follower, questionView } from "./turns.js";

const api = new Api();
const settings = new Settings(() => {
  api.key = settings.key;
  connect();
  board.start();
});
api.key = settings.key;
const board = new Board(api);
const images = new Images((text) => show($("problem"), text));
const follower = new Follower($("scroll"));
let conversation = new Conversation();
let running = null; // the AbortController of the answer that is being written

// ---- server

async function connect() {
  try {
    const models = await api.models();
    settings.setModels(models.map((model) => model.id));
    state("ok", settings.model || "ready");
    if (conversation.turns.length === 0) show($("problem"), "");
  } catch (error) {
    if (error.status === 401) {
      state("key", "needs a key");
      settings.open("This server wants an API key.", "key");
    } else {
      state("away", error.message);
    }
  }
}

function state(name, text) {
  $("state").dataset.state = name;
  $("state-text").textContent = text;
  document.title = name === "ok" ? `${text} · ninfer` : "ninfer";
}

async function watch() {
  let healthy = false;
  try {
    healthy = document.hidden || (await api.healthy());
    if (healthy && $("state").dataset.state === "away") await connect();
    else if (!healthy) state("away", "not ready");
  } catch {
    state("away", "no answer");
  }
  setTimeout(watch, healthy ? 5000 : 2000);
}

// ---- conversation

function ask() {
  const text = $("question").value.trim();
  if (running || (!text && !images.count)) return;
  $("question").value = "";
  grow();
  const question = new Question(text, images.take());
  conversation.turns.push(question);
  const place = conversation.turns.length - 1;
  $("log").append(questionView(question, () => edit(place)));
  $("hello").hidden = true;
  answer();
}

async function answer() {
  let body;
  try {
    const fields = requestFields({ ...settings.values, model: settings.model });
    body = { ...fields, messages: conversation.messages(settings.values.system) };
  } catch (error) {
    settings.open(error.message, "tools");
    return;
  }
  const one = new Answer();
  conversation.turns.push(one);
  const place = conversation.turns.length - 1;
  const view = new AnswerView(one, { onRetry: () => retry(place), onResults: answer });
  $("log").append(view.element);
  follower.jump();
  running = new AbortController();
  busy(true);
  say("The model answers");
  const started = performance.now();
  try {
    for await (const delta of api.chat(body, running.signal)) {
      if (one.reasoning && !one.thinkingMs && (delta.content || delta.call)) {
        one.thinkingMs = performance.now() - started;
      }
      one.add(delta);
      view.changed(() => follower.follow());
    }
  } catch (error) {
    if (error.name === "AbortError") one.stopped = true;
    else fail(one, error);
  }
  if (one.reasoning && !one.thinkingMs) one.thinkingMs = performance.now() - started;
  running = null;
  busy(false);
  view.finished();
  follower.follow();
  say(one.error ? `Failed: ${one.error}` : one.stopped ? "Stopped" : "The answer is complete");
}

function fail(one, error) {
  one.error = error.message;
  if (error.status === 401) settings.open("This server wants another API key.", "key");
}

function busy(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  for (const button of document.querySelectorAll(".act button")) button.disabled = on;
}

// Take turns back until `place` is the next one.
function rewind(place) {
  running?.abort();
  conversation.turns.length = place;
  while ($("log").children.length > place) $("log").lastElementChild.remove();
  $("hello").hidden = place > 0;
}

function retry(place) {
  if (running) return;
  rewind(place);
  answer();
}

function edit(place) {
  if (running) return;
  const { text, images: urls } = conversation.turns[place];
  rewind(place);
  $("question").value = text;
  images.put(urls);
  grow();
  $("question").focus();
}

function restart() {
  rewind(0);
  conversation = new Conversation();
  show($("problem"), "");
  $("question").focus();
  say("New conversation");
}

function save() {
  const data = JSON.stringify({ messages: conversation.messages(settings.values.system) }, null, 2);
  const url = URL.createObjectURL(new Blob([data], { type: "application/json" }));
  make("a", { href: url, download: "conversation.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// ---- page

function grow() {
  const field = $("question");
  field.style.setProperty("height", "auto");
  field.style.setProperty("height", `${Math.min(field.scrollHeight, 220)}px`);
}

function view(name, { focus = false } = {}) {
  document.body.dataset.view = name;
  for (const each of ["chat", "board"]) {
    const tab = $(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    if (focus && each === name) tab.focus();
  }
}

function keys(event) {
  if ($("settings").open) return;
  const typing = event.target.closest("input, textarea, select");
  const plainAlt = event.altKey && !event.ctrlKey && !event.metaKey;
  const shortcut = plainAlt ? SHORTCUTS[event.code] : undefined;
  if (event.key === "Escape" && running) running.abort();
  else if (event.key === "/" && !typing) $("question").focus();
  else if (shortcut) shortcut();
  else return;
  event.preventDefault();
}

// By place on the keyboard: with Alt, macOS types other letters.
const SHORTCUTS = {
  KeyN: restart,
  KeyS: save,
  KeyI: () => $("attach").click(),
  Comma: () => settings.open(),
  Digit1: () => view("chat"),
  Digit2: () => view("board"),
};

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("question").addEventListener("keydown", (event) => {
  // While an input method composes a word, Enter belongs to it.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask();
});
$("question").addEventListener("input", () => {
  grow();
  show($("problem"), "");
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", restart);
$("save").addEventListener("click", save);
for (const each of ["chat", "board"]) {
  $(`tab-${each}`).addEventListener("click", () => view(each));
  $(`tab-${each}`).addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    view(each === "chat" ? "board" : "chat", { focus: true });
  });
}
document.addEventListener("keydown", keys);

themeButton();
connect();
watch();
board.start();
if (matchMedia("(hover: hover)").matches) $("question").focus();
