// Elements with attributes and children, and short names for those of the page.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const $ = (id) => document.getElementById(id);

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

// What a screen reader says without moving the focus.
export function say(text) {
  $("said").textContent = text;
}
