// Elements with attributes and children, and short names for those of the page.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const $ = (id) => document.getElementById(id);

export function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

// The clipboard of the browser exists for local and encrypted addresses only; the old way works
// everywhere.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { class: "away", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// What a screen reader says without moving the focus.
export function say(text) {
  $("said").textContent = text;
}
