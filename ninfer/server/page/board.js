// The live dashboard: reads /metrics while it can be seen and draws what changed.

import { $, make, show } from "./dom.js";
import { Drawing, forgetColours } from "./chart.js";
import { Reading, buckets, growth, parseMetrics, perSecond, quantile, share } from "./metrics.js";

const EVERY = 1000;
const SPAN = 180000;
const FIRST_SPAN = 30000; // a young page shows what it has, larger
// A rate over one second of a bursty engine flickers; over this many readings it can be read.
const WINDOW = 4;

const NAMES = {
  made: ["ninfer_generation_tokens_total", "vllm:generation_tokens_total"],
  prefilled: ["ninfer_prefill_tokens_total", "vllm:prompt_tokens_total"],
  drafted: ["ninfer_spec_decode_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"],
  accepted: ["ninfer_spec_decode_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"],
  rounds: ["ninfer_spec_decode_rounds_total", "vllm:spec_decode_num_drafts_total"],
  running: ["ninfer_requests_running", "vllm:num_requests_running"],
  waiting: ["ninfer_requests_waiting", "vllm:num_requests_waiting"],
  places: ["ninfer_max_concurrency"],
  pagesUsed: ["ninfer_device_kv_used_pages"],
  pages: ["ninfer_device_kv_capacity_pages"],
  slotsUsed: ["ninfer_device_state_used_slots"],
  slots: ["ninfer_device_state_capacity_slots"],
  prompt: ["ninfer_prompt_tokens_total", "vllm:prompt_tokens_total"],
  cached: ["ninfer_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"],
};
const time = (s) => {
  if (s === null) return "–";
  if (s === Infinity) return "longer than is counted";
  return s < 1 ? `${Math.round(s * 1000)} ms` : `${s} s`;
};
const ANSWERS = "ninfer_answers_total";
const STRUCTURED = "ninfer_structured_answers_total";
const PER_PLACE = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
const REPLICAS = "ninfer_cluster_replicas";
const REPLICA_REQUESTS = "ninfer_cluster_requests";
const FIRST_TOKEN = "ninfer_time_to_first_token_seconds";

const count = (value) => (value === null ? "–" : Math.round(value).toLocaleString("en"));
const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)} %`);
const short = (value) => {
  if (value >= 10000) return `${Math.round(value / 1000)}k`;
  return String(value >= 10 ? Math.round(value) : +value.toFixed(1));
};

export class Board {
  #readings = [];
  #series = { made: [], prefilled: [], accepted: [], running: [], waiting: [], pages: [], hits: [] };
  #timer = 0;
  #fails = 0;

  constructor(api) {
    this.api = api;
    this.cards = {
      rate: card("Tokens per second", ["written", "--one"], ["of prompts, computed", "--two"]),
      accept: card("Drafts accepted", ["of those tried", "--one"]),
      places: card("Accepted, by place in the draft"),
      queue: card("Requests", ["running", "--one"], ["waiting", "--three"]),
      pages: card("KV pages"),
      hits: card("Prompt from the cache", ["of the prompt tokens", "--two"]),
      first: card("Time to the first token"),
      worth: card("Answers that can be used"),
      replicas: card("Replicas"),
    };
    $("cards").append(...Object.values(this.cards).map((one) => one.element));
    document.addEventListener("visibilitychange", () => this.#visible());
    const redraw = () => {
      forgetColours();
      this.#draw();
    };
    document.addEventListener("themechange", redraw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(() => this.#draw()).observe($("board"));
  }

  start() {
    clearTimeout(this.#timer);
    this.#poll();
  }

  #visible() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    // What happened meanwhile is no rate of the first second after.
    this.#readings = [];
    this.#poll();
  }

  async #poll() {
    const asked = performance.now();
    try {
      const reading = new Reading(Date.now(), parseMetrics(await this.api.metrics()));
      this.#fails = 0;
      show($("board-note"), "");
      this.#add(reading);
    } catch (error) {
      this.#fails += 1;
      this.#readings = [];
      const locked = error.status === 401;
      show($("board-note"), locked ? "The numbers need the API key." : `No numbers: ${error.message}`);
    }
    this.#draw();
    const wait = Math.min(EVERY * 2 ** this.#fails, 15000) - (performance.now() - asked);
    if (!document.hidden) this.#timer = setTimeout(() => this.#poll(), Math.max(wait, 100));
  }

  #add(now) {
    const before = this.#readings.at(-WINDOW) ?? this.#readings[0];
    this.#readings = [...this.#readings.slice(-WINDOW), now];
    const put = (name, value) => {
      const points = this.#series[name];
      points.push([now.time, value]);
      while (points.length && points[0][0] < now.time - SPAN) points.shift();
    };
    const grew = (name) => growth(before, now, ...NAMES[name]);
    put("made", perSecond(before, now, ...NAMES.made));
    put("prefilled", perSecond(before, now, ...NAMES.prefilled));
    put("accepted", share(grew("accepted"), grew("drafted")));
    put("running", now.value(...NAMES.running));
    put("waiting", now.value(...NAMES.waiting));
    put("pages", share(now.value(...NAMES.pagesUsed), now.value(...NAMES.pages)));
    put("hits", share(grew("cached"), grew("prompt")));
  }

  #draw() {
    const now = this.#readings.at(-1);
    const s = this.#series;
    const [end, start] = [now?.time ?? Date.now(), s.running[0]?.[0] ?? Infinity];
    const axis = { now: end, span: Math.min(Math.max(end - start, FIRST_SPAN), SPAN) };
    const last = (name) => s[name].at(-1)?.[1] ?? null;
    const get = (name) => now?.value(...NAMES[name]) ?? null;
    const c = this.cards;
    const counts = { ...axis, format: short };
    const shares = { ...axis, top: 1, format: percent };
    c.rate.set(count(last("made")), [[s.prefilled, "--two"], [s.made, "--one", true]], counts);
    c.rate.note("live counts of this server, no benchmark");
    const all = share(get("accepted"), get("drafted"));
    c.accept.set(percent(last("accepted") ?? all), [[s.accepted, "--one", true]], shares);
    c.accept.note(get("drafted") ? `${percent(all)} since the start` : "no drafts until now");
    this.#places(now);
    c.queue.set(count(get("running")), [[s.waiting, "--three"], [s.running, "--one", true]], counts);
    const places = get("places") ? `, ${count(get("places"))} places` : "";
    c.queue.note(`${count(get("waiting"))} waiting${places}`);
    const hit = share(get("cached"), get("prompt"));
    c.hits.set(percent(last("hits") ?? hit), [[s.hits, "--two", true]], shares);
    c.hits.note(`${percent(hit)} since the start, ${count(get("cached"))} tokens`);
    this.#pages(get);
    this.#first(now);
    this.#worth(now);
    this.#replicas(now);
  }

  // Of a cluster: which replicas serve, and the requests that each has.
  #replicas(now) {
    const card = this.cards.replicas;
    const serves = now ? now.byLabel(REPLICAS, "serves") : new Map();
    card.element.hidden = !serves.size;
    if (!serves.size) return;
    const yes = serves.get("yes") ?? 0;
    card.value.textContent = `${count(yes)} of ${count(yes + (serves.get("no") ?? 0))} serve`;
    const bars = [...now.byLabel(REPLICA_REQUESTS, "replica")].map(([name, value]) => ({
      value,
      label: name.slice(-4),
    }));
    card.drawing.bars(bars, { top: Math.max(1, ...bars.map((bar) => bar.value)) });
    const told = bars.map((bar) => `${bar.label}: ${count(bar.value)}`).join(", ");
    card.label(told);
    card.note(bars.length ? `requests under way, ${told}` : "");
  }

  // What the answers since the start were worth, by verdict.
  #worth(now) {
    const card = this.cards.worth;
    const by = now ? now.byLabel(ANSWERS, "verdict") : new Map();
    const all = [...by.values()].reduce((sum, value) => sum + value, 0);
    card.element.hidden = !all;
    if (!all) return;
    const good = by.get("usable") ?? 0;
    const bad = [...by].filter(([word, value]) => word !== "usable" && value);
    bad.sort((a, b) => b[1] - a[1]);
    const names = [["usable", good], ...bad].map(([word, value]) => [word.replaceAll("_", " "), value]);
    card.value.textContent = percent(good / all);
    card.drawing.bars(names.map(([label, value]) => ({ value: value / all, label })), { top: 1 });
    const told = names.map(([word, value]) => `${count(value)} ${word}`).join(", ");
    card.label(told);
    const kept = now.byLabel(STRUCTURED, "kept");
    const forms = (kept.get("yes") ?? 0) + (kept.get("no") ?? 0);
    const form = forms ? `; ${count(kept.get("yes") ?? 0)} of ${count(forms)} keep their form` : "";
    card.note(`${told}, since the start${form}`);
  }

  #pages(get) {
    const card = this.cards.pages;
    const [used, pages] = [get("pagesUsed"), get("pages")];
    card.value.textContent = percent(share(used, pages));
    card.drawing.cells(used ?? 0, pages ?? 0);
    card.label(`${count(used)} of ${count(pages)} pages in use`);
    const slots = `${count(get("slotsUsed"))} of ${count(get("slots"))} state slots`;
    card.note(pages ? `${count(used)} of ${count(pages)} pages, ${slots}` : "");
  }

  #places(now) {
    const card = this.cards.places;
    const by = now ? [...now.byLabel(PER_PLACE, "position")].sort((a, b) => a[0] - b[0]) : [];
    const rounds = now?.value(...NAMES.rounds) ?? 0;
    card.element.hidden = !by.length || !rounds;
    if (card.element.hidden) return;
    const bars = by.map(([place, accepted]) => ({
      value: accepted / rounds,
      label: String(Number(place) + 1),
    }));
    card.value.textContent = percent(bars[0].value);
    card.drawing.bars(bars, { top: 1 });
    card.label(bars.map((bar) => `place ${bar.label}: ${percent(bar.value)}`).join(", "));
    card.note("of all rounds, since the start");
  }

  #first(now) {
    const card = this.cards.first;
    const counts = now ? buckets(now, FIRST_TOKEN) : [];
    const [half, most] = [quantile(counts, 0.5), quantile(counts, 0.95)];
    card.value.textContent = half === null ? "–" : `≤ ${time(half)}`;
    const label = (bound, i) => (i % 3 || bound === Infinity ? "" : time(bound).replace(" ", ""));
    const bars = counts.map(([bound, value], i) => ({ value, label: label(bound, i) }));
    card.drawing.bars(bars, { colour: "--two" });
    card.note(half === null ? "no answers yet" : `half of all answers; 95 % within ${time(most)}`);
    card.label(card.hint.textContent);
  }
}

function card(title, ...legend) {
  const value = make("output", { class: "value" }, "–");
  const canvas = make("canvas", { role: "img", "aria-label": title });
  const hint = make("p", { class: "hint" });
  const keys = legend.map(([text, colour]) => {
    const mark = make("i", { "aria-hidden": "true" });
    mark.style.setProperty("background", `var(${colour})`);
    return make("span", {}, mark, text);
  });
  const head = make("figcaption", {}, make("h2", {}, title), value);
  const element = make("figure", { class: "card" }, head, canvas, hint);
  if (keys.length) element.insertBefore(make("p", { class: "legend" }, ...keys), canvas);
  const drawing = new Drawing(canvas);
  const label = (text) => canvas.setAttribute("aria-label", `${title}: ${text}`);
  const note = (text) => (hint.textContent = text);
  const set = (text, series, options) => {
    value.textContent = text;
    label(text);
    drawing.lines(series.map(([points, colour, area]) => ({ points, colour, area })), options);
  };
  return { element, value, hint, drawing, label, note, set };
}
