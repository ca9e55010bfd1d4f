// Images for the next question: chosen, pasted or dropped; shown small, removable.

import { $, make } from "./dom.js";

const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const LARGEST = 16 << 20;

export class Images {
  #urls = [];

  constructor(onProblem) {
    this.onProblem = onProblem;
    $("attach").addEventListener("click", () => $("files").click());
    $("files").addEventListener("change", () => {
      const files = [...$("files").files]; // the list itself empties with the field
      $("files").value = ""; // so that the same file can be chosen again
      this.add(files);
    });
    document.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.add(files);
    });
    document.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("drop");
    });
    for (const name of ["dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        if (name === "drop" || !event.relatedTarget) document.body.classList.remove("drop");
      });
    }
    document.addEventListener("drop", (event) => {
      const files = [...(event.dataTransfer?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.add(files);
    });
  }

  async add(files) {
    for (const file of files) {
      if (!KINDS.includes(file.type)) this.onProblem(`${file.name}: no PNG, JPEG, WebP or GIF image`);
      else if (file.size > LARGEST) this.onProblem(`${file.name}: larger than 16 MiB`);
      else this.#urls.push(await dataUrl(file));
    }
    this.#draw();
  }

  get count() {
    return this.#urls.length;
  }

  put(urls) {
    this.#urls = [...urls];
    this.#draw();
  }

  take() {
    const urls = this.#urls;
    this.put([]);
    return urls;
  }

  #draw() {
    $("attached").replaceChildren(
      ...this.#urls.map((url, i) => {
        const remove = make("button", { type: "button", "aria-label": `Remove image ${i + 1}` }, "×");
        remove.addEventListener("click", () => {
          this.#urls.splice(i, 1);
          this.#draw();
          $("question").focus();
        });
        return make("li", {}, make("img", { src: url, alt: `Image ${i + 1}` }), remove);
      }),
    );
  }
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
