// What the user set: kept in this browser, but for the key, which goes with the tab.

import { $, make, show } from "./dom.js";
import { parseTools } from "./conversation.js";

const PLACE = "ninfer-settings";
const KEY_PLACE = "ninfer-key";
const FIELDS = ["model", "system", "effort", "temperature", "top_p", "max_tokens", "seed", "tools"];

export class Settings {
  constructor(onChange) {
    this.values = { thinking: true, ...Object.fromEntries(FIELDS.map((name) => [name, ""])) };
    Object.assign(this.values, read("localStorage", PLACE));
    this.key = read("sessionStorage", KEY_PLACE)?.key ?? "";
    this.models = [];
    this.onChange = onChange;
    this.dialog = $("settings");
    $("settings-open").addEventListener("click", () => this.open());
    $("settings-cancel").addEventListener("click", () => this.dialog.close());
    $("settings-form").addEventListener("submit", (event) => this.#submit(event));
  }

  setModels(ids) {
    this.models = ids;
    // A model that this server no longer has must not break every question.
    if (!ids.includes(this.values.model)) this.values.model = "";
  }

  get model() {
    return this.values.model || this.models[0] || "";
  }

  open(problem = "", field = "") {
    const inputs = $("settings-form").elements;
    const options = this.models.map((id) => make("option", { value: id }, id));
    if (!options.length) options.push(make("option", { value: "" }, "the server's"));
    inputs.model.replaceChildren(...options);
    for (const name of FIELDS) inputs[name].value = this.values[name];
    inputs.model.value = this.model;
    inputs.thinking.checked = this.values.thinking;
    inputs.key.value = this.key;
    show($("settings-problem"), problem);
    if (!this.dialog.open) this.dialog.showModal();
    if (field) inputs[field].focus();
  }

  #submit(event) {
    const inputs = $("settings-form").elements;
    try {
      parseTools(inputs.tools.value);
    } catch (error) {
      event.preventDefault();
      show($("settings-problem"), error.message);
      inputs.tools.focus();
      return;
    }
    for (const name of FIELDS) this.values[name] = inputs[name].value;
    this.values.thinking = inputs.thinking.checked;
    this.key = inputs.key.value.trim();
    write("localStorage", PLACE, this.values);
    write("sessionStorage", KEY_PLACE, { key: this.key });
    this.onChange();
  }
}

// Storage may be switched off; then settings last as long as the page.
function read(storage, place) {
  try {
    return JSON.parse(window[storage].getItem(place)) ?? {};
  } catch {
    return {};
  }
}

function write(storage, place, value) {
  try {
    window[storage].setItem(place, JSON.stringify(value));
  } catch {
    return;
  }
}

const THEMES = { "": "as the system", light: "light", dark: "dark" };

export function themeButton() {
  const names = Object.keys(THEMES);
  let chosen = read("localStorage", "ninfer-theme").name ?? "";
  const apply = () => {
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    $("theme").setAttribute("aria-label", `Colours: ${THEMES[chosen]}`);
    document.dispatchEvent(new Event("themechange"));
  };
  $("theme").addEventListener("click", () => {
    chosen = names[(names.indexOf(chosen) + 1) % names.length];
    write("localStorage", "ninfer-theme", { name: chosen });
    apply();
  });
  apply();
}
