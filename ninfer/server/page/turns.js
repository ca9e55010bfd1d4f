// The turns of the conversation as elements: questions, thinking, answers, calls.

import { $, copyText, make, say } from "./dom.js";
import { MarkdownView } from "./markdown.js";

export function questionView(question, onEdit) {
  const picture = (url, i) => make("img", { src: url, alt: `Image ${i + 1} of the question` });
  const images = question.images.map(picture);
  const edit = make("button", { type: "button", class: "small" }, "Edit");
  edit.addEventListener("click", onEdit);
  const item = make("li", { class: "turn question" }, make("h2", { class: "away" }, "You"));
  if (images.length) item.append(make("div", { class: "pictures" }, ...images));
  item.append(make("p", { class: "said" }, question.text), make("div", { class: "act" }, edit));
  return item;
}

export class AnswerView {
  #frame = 0;
  #calls = [];
  #touched = false; // the user opened or closed the thinking
  #thoughtView;
  #textView;

  constructor(answer, { onRetry, onResults }) {
    this.answer = answer;
    this.onResults = onResults;
    this.thought = make("div", { class: "prose" });
    this.summary = make("summary", {}, "Thinking");
    this.thinking = make("details", { class: "thinking" }, this.summary, this.thought);
    this.thinking.hidden = true;
    this.summary.addEventListener("click", () => (this.#touched = true));
    this.thinking.addEventListener("toggle", () => this.#thoughtView.update(answer.reasoning));
    this.text = make("div", { class: "prose" });
    this.calls = make("div", { class: "calls" });
    this.foot = make("p", { class: "foot" });
    const dots = [make("span"), make("span"), make("span")];
    this.wait = make("p", { class: "wait", "aria-hidden": "true" }, ...dots);
    const retry = button("Again", onRetry);
    const copy = button("Copy", async () => {
      await copyText(answer.content);
      say("Answer copied");
    });
    this.act = make("div", { class: "act" }, copy, retry);
    this.act.hidden = true;
    this.element = make(
      "li",
      { class: "turn answer", "aria-busy": "true" },
      make("h2", { class: "away" }, "Model"),
      this.thinking, this.text, this.calls, this.wait, this.foot, this.act,
    );
    this.#thoughtView = new MarkdownView(this.thought);
    this.#textView = new MarkdownView(this.text);
  }

  // Draw what is new, at most once a frame. `after` runs when it is on the page.
  changed(after) {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
      after();
    });
  }

  finished() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#draw();
    const { answer } = this;
    this.element.setAttribute("aria-busy", "false");
    this.wait.hidden = true;
    this.act.hidden = false;
    if (answer.thinkingMs) this.summary.textContent = `Thought for ${seconds(answer.thinkingMs)}`;
    this.foot.textContent = footText(answer);
    this.element.classList.toggle("failed", Boolean(answer.error));
    if (answer.wantsResults && this.onResults) this.#askForResults();
  }

  #draw() {
    const { answer } = this;
    this.wait.hidden = !answer.isEmpty;
    if (answer.reasoning) {
      this.thinking.hidden = false;
      // Open while there is nothing else to read; what the user chose stays.
      if (!this.#touched) this.thinking.open = !answer.content && !answer.calls.length;
      if (this.thinking.open) this.#thoughtView.update(answer.reasoning);
    }
    this.#textView.update(answer.content);
    answer.calls.forEach((call, i) => this.#drawCall(call, i));
  }

  #drawCall(call, i) {
    const view = (this.#calls[i] ??= callView(this.calls));
    view.name.textContent = call.name || "…";
    view.body.textContent = pretty(call.arguments);
  }

  #askForResults() {
    const fields = this.#calls.map((view, i) => {
      const id = `result-${(resultFields += 1)}`;
      const field = make("textarea", { id, rows: "2", placeholder: "What the function returned" });
      field.value = this.answer.results[i] ?? "";
      view.element.append(make("label", { for: id }, "Result"), field);
      return field;
    });
    const send = button("Send results", () => {
      this.answer.results = fields.map((field) => field.value);
      fields.forEach((field) => (field.readOnly = true));
      send.remove();
      this.onResults();
    });
    send.className = "primary";
    this.calls.append(send);
    fields[0].focus({ preventScroll: true });
  }
}

let resultFields = 0;

function callView(parent) {
  const name = make("code", { class: "call-name" });
  const body = make("pre", { tabindex: "0", "aria-label": "Arguments" });
  const title = make("p", {}, "Calls ", name);
  const element = make("section", { class: "call", "aria-label": "Function call" }, title, body);
  parent.append(element);
  return { name, body, element };
}

function button(text, onClick) {
  const element = make("button", { type: "button", class: "small" }, text);
  element.addEventListener("click", onClick);
  return element;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still coming
  }
}

export function seconds(ms) {
  const s = ms / 1000;
  if (s < 100) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
}

const REASONS = { length: "cut at the token limit", content_filter: "filtered" };

function footText({ usage, finish, error, stopped }) {
  const parts = [];
  if (error) parts.push(error);
  else if (stopped) parts.push("stopped");
  else if (REASONS[finish]) parts.push(REASONS[finish]);
  if (usage) {
    const part = (count, what) => (count ? `, ${count} of them ${what}` : "");
    const cached = part(usage.prompt_tokens_details?.cached_tokens, "from the cache");
    const thought = part(usage.completion_tokens_details?.reasoning_tokens, "thinking");
    parts.push(`${usage.prompt_tokens} tokens read${cached}`);
    parts.push(`${usage.completion_tokens} written${thought}`);
  }
  return parts.join(" · ");
}

// Keeps the newest text in view while the reader is at the end, and only then.
export class Follower {
  constructor(box) {
    this.box = box;
    this.follows = true;
    box.addEventListener("scroll", () => {
      this.follows = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
      $("down").hidden = this.follows;
    }, { passive: true });
    $("down").addEventListener("click", () => this.jump());
  }

  jump() {
    this.follows = true;
    this.follow();
  }

  follow() {
    if (this.follows) this.box.scrollTop = this.box.scrollHeight;
    $("down").hidden = this.follows;
  }
}
