// Markdown to elements, never to HTML text: what a model writes cannot become markup or script.
// Blocks that did not change keep their elements, so a long answer streams at the price of its end.

import { copyText, make } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const QUOTE = /^ {0,3}>/;
const CELLS = /^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*$/;

export class MarkdownView {
  #sources = [];

  constructor(element) {
    this.element = element;
  }

  update(text) {
    const blocks = splitBlocks(text);
    blocks.forEach((block, i) => {
      if (this.#sources[i] === block.source) return;
      const node = render(block);
      const old = this.element.children[i];
      if (old) old.replaceWith(node);
      else this.element.append(node);
    });
    while (this.element.children.length > blocks.length) this.element.lastElementChild.remove();
    this.#sources = blocks.map((block) => block.source);
  }
}

export function splitBlocks(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    if (!lines[i].trim()) {
      i += 1;
      continue;
    }
    const [kind, end] = blockAt(lines, i);
    blocks.push({ kind, lines: lines.slice(i, end), source: lines.slice(i, end).join("\n") });
    i = end;
  }
  return blocks;
}

function blockAt(lines, start) {
  const line = lines[start];
  const fence = FENCE.exec(line);
  if (fence) {
    let end = start + 1;
    const closes = (text) => {
      const mark = text.trim();
      return mark.startsWith(fence[1]) && !mark.replaceAll(fence[1][0], "");
    };
    while (end < lines.length && !closes(lines[end])) end += 1;
    return ["code", Math.min(end + 1, lines.length)];
  }
  if (HEADING.test(line)) return ["heading", start + 1];
  if (RULE.test(line)) return ["rule", start + 1];
  if (QUOTE.test(line)) return ["quote", runEnd(lines, start, (t) => QUOTE.test(t))];
  if (line.includes("|") && CELLS.test(lines[start + 1] ?? "")) {
    return ["table", runEnd(lines, start, (t) => t.includes("|"))];
  }
  if (ITEM.test(line)) return ["list", listEnd(lines, start)];
  return ["text", runEnd(lines, start + 1, (t) => t.trim() && !startsBlock(t))];
}

function startsBlock(line) {
  return [FENCE, HEADING, RULE, QUOTE, /^ {0,3}([-*+]|1[.)])\s/].some((start) => start.test(line));
}

function runEnd(lines, start, holds) {
  let end = start;
  while (end < lines.length && holds(lines[end])) end += 1;
  return end;
}

// A list goes on over single empty lines as long as an item or an indented line follows.
function listEnd(lines, start) {
  let end = start + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (line.trim() && !ITEM.test(line) && !/^\s{2,}/.test(line) && startsBlock(line)) break;
    if (!line.trim()) {
      const next = lines[end + 1] ?? "";
      if (!ITEM.test(next) && !/^\s{2,}\S/.test(next)) break;
    }
    end += 1;
  }
  return end;
}

function render({ kind, lines }) {
  switch (kind) {
    case "code":
      return code(lines);
    case "heading": {
      const [, marks, text] = HEADING.exec(lines[0]);
      // The page has h1 and h2 of its own.
      return make(`h${Math.min(Math.max(marks.length + 1, 3), 6)}`, {}, ...inline(text));
    }
    case "rule":
      return make("hr");
    case "quote":
      return nested("blockquote", lines.map((line) => line.replace(/^\s*> ?/, "")));
    case "table":
      return table(lines);
    case "list":
      return list(lines);
    default:
      return make("p", {}, ...inline(lines.join("\n")));
  }
}

function nested(tag, lines) {
  return make(tag, {}, ...splitBlocks(lines.join("\n")).map(render));
}

function code(lines) {
  const [, mark, language] = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && lines.at(-1).trim().startsWith(mark);
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const copy = make("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    await copyText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const title = make("figcaption", {}, make("span", {}, language.trim() || "text"), copy);
  const body = make("pre", { tabindex: "0", "aria-label": "Code" }, make("code", {}, text));
  return make("figure", { class: "code" }, title, body);
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|");
  const sides = cells(lines[1]).map((mark) => ({ class: side(mark.trim()) }));
  const cell = (tag) => (text, i) => make(tag, sides[i] ?? {}, ...inline(text.trim()));
  const row = (line, tag) => make("tr", {}, ...cells(line).map(cell(tag)));
  const head = make("thead", {}, row(lines[0], "th"));
  const body = make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")));
  return make("div", { class: "table", tabindex: "0" }, make("table", {}, head, body));
}

function side(mark) {
  if (!mark.endsWith(":")) return "start";
  return mark.startsWith(":") ? "middle" : "end";
}

function list(lines) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) items.push([item[3]]);
    else items.at(-1).push(line);
  }
  const ordered = /\d/.test(mark);
  const first = parseInt(mark, 10);
  const attributes = ordered && first !== 1 ? { start: String(first) } : {};
  return make(ordered ? "ol" : "ul", attributes, ...items.map(listItem));
}

function listItem(lines) {
  const indents = lines.slice(1).filter((line) => line.trim()).map((line) => line.search(/\S/));
  const depth = Math.min(...indents, 8);
  const inner = [lines[0], ...lines.slice(1).map((line) => line.slice(depth))];
  const blocks = splitBlocks(inner.join("\n"));
  if (blocks[0]?.kind !== "text") return make("li", {}, ...blocks.map(render));
  return make("li", {}, ...inline(blocks[0].source), ...blocks.slice(1).map(render));
}

const INLINE = new RegExp(
  [
    /(`+)(.+?)\1(?!`)/, // code
    /!?\[([^\]\n]*)\]\(\s*<?([^\s)>]+)>?[^)\n]*\)/, // link or image
    /\*\*(?=\S)(.+?\S|\S)\*\*/,
    /(?<![\w*])\*(?=[^\s*])(.+?)(?<=\S)\*(?![\w*])/,
    /(?<!\w)_(?=[^\s_])(.+?)(?<=\S)_(?!\w)/,
    /~~(?=\S)(.+?)~~/,
    /(https?:\/\/[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?])/, // a bare address without what ends its sentence
  ]
    .map((part) => part.source)
    .join("|"),
  "s",
);

export function inline(text) {
  const out = [];
  for (let rest = text; rest; ) {
    const found = INLINE.exec(rest);
    if (!found) return [...out, rest];
    if (found.index) out.push(rest.slice(0, found.index));
    out.push(span(found));
    rest = rest.slice(found.index + found[0].length);
  }
  return out;
}

function span([whole, , literal, label, target, bold, italic, italic2, struck, bare]) {
  if (literal !== undefined) return make("code", {}, literal.trim() || literal);
  if (target !== undefined) return link(target, label || target, whole);
  if (bold !== undefined) return make("strong", {}, ...inline(bold));
  if (struck !== undefined) return make("del", {}, ...inline(struck));
  if (bare !== undefined) return link(bare, bare, whole);
  return make("em", {}, ...inline(italic ?? italic2));
}

// Images are links too: the page loads nothing from elsewhere.
function link(target, label, whole) {
  if (!/^(https?:|mailto:)/i.test(target)) return whole;
  return make("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}
