// Drawings on canvas: lines over time, bars, and a field of cells. Sharp on every screen, and in
// the colours of the page.

const GAP = 36; // pixels on the left for the scale

export class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  // Clear and scale; returns [width, height] in CSS pixels, or null while hidden.
  begin() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return null;
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = `10px ${this.colour("font-family") || "sans-serif"}`;
    return [width, height];
  }

  colour(name) {
    const style = getComputedStyle(this.canvas);
    return name.startsWith("--") ? resolved(this.canvas, name) : style.getPropertyValue(name);
  }

  // Lines over the last `span` milliseconds. `series`: [{points: [[time, value|null]], colour, area}].
  lines(series, { now, span, top = null, format }) {
    const size = this.begin();
    if (!size) return;
    const [width, height] = size;
    const highest = Math.max(...series.flatMap((s) => s.points.map(([, v]) => v ?? 0)), 0);
    const limit = top ?? niceTop(highest);
    const x = (time) => GAP + ((time - now + span) / span) * (width - GAP - 4);
    const y = (value) => height - 14 - (value / limit) * (height - 22);
    this.#grid(width, limit, y, format, span);
    for (const one of series) {
      for (const run of runs(one.points)) this.#run(run, x, y, this.colour(one.colour), one.area);
    }
  }

  #grid(width, limit, y, format, span) {
    const c = this.context;
    c.strokeStyle = this.colour("--line");
    c.fillStyle = this.colour("--faint");
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      const at = Math.round(y(limit * part)) + 0.5;
      c.beginPath();
      c.moveTo(GAP, at);
      c.lineTo(width - 4, at);
      c.stroke();
      c.fillText(format(limit * part), GAP - 4, at);
    }
    c.textBaseline = "alphabetic";
    c.textAlign = "left";
    const ago = span < 120000 ? `${Math.round(span / 1000)} s` : `${Math.round(span / 60000)} min`;
    c.fillText(`${ago} ago`, GAP, y(0) + 12);
    c.textAlign = "right";
    c.fillText("now", width - 4, y(0) + 12);
  }

  #run(points, x, y, colour, area) {
    const c = this.context;
    const path = new Path2D();
    for (const [time, value] of points) path.lineTo(x(time), y(value));
    if (area && points.length > 1) {
      const filled = new Path2D(path);
      filled.lineTo(x(points.at(-1)[0]), y(0));
      filled.lineTo(x(points[0][0]), y(0));
      c.globalAlpha = 0.16;
      c.fillStyle = colour;
      c.fill(filled);
      c.globalAlpha = 1;
    }
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = 1.75;
    c.lineJoin = "round";
    c.stroke(path);
    const [time, value] = points.at(-1);
    c.beginPath();
    c.arc(x(time), y(value), 2.4, 0, 2 * Math.PI);
    c.fill();
  }

  // Bars side by side: [{value, label}], with the largest as high as the drawing.
  bars(bars, { top = null, colour = "--one" }) {
    const size = this.begin();
    if (!size || !bars.length) return;
    const [width, height] = size;
    const limit = top ?? Math.max(...bars.map((bar) => bar.value), 1e-9);
    const step = width / bars.length;
    const c = this.context;
    c.textAlign = "center";
    bars.forEach(({ value, label }, i) => {
      const tall = Math.max((value / limit) * (height - 16), value > 0 ? 2 : 1);
      c.fillStyle = this.colour(value > 0 ? colour : "--line");
      c.beginPath();
      c.roundRect(i * step + step * 0.14, height - 13 - tall, step * 0.72, tall, [3, 3, 0, 0]);
      c.fill();
      c.fillStyle = this.colour("--faint");
      c.fillText(label, (i + 0.5) * step, height - 2);
    });
  }

  // A field of cells of which a part is filled, in reading order, as pages are in a pool.
  cells(used, capacity, colour = "--one") {
    const size = this.begin();
    if (!size || !capacity) return;
    const [width, height] = size;
    const count = Math.min(capacity, 320);
    const columns = Math.max(1, Math.round(Math.sqrt((count * width) / height)));
    const rows = Math.ceil(count / columns);
    const [w, h] = [width / columns, height / rows];
    const filled = (used / capacity) * count;
    const c = this.context;
    const [on, off] = [this.colour(colour), this.colour("--line")];
    for (let i = 0; i < count; i += 1) {
      const part = Math.min(Math.max(filled - i, 0), 1);
      const [x, y] = [(i % columns) * w + 1, Math.floor(i / columns) * h + 1];
      c.fillStyle = off;
      round(c, x, y, w - 2, h - 2);
      if (part > 0) {
        c.fillStyle = on;
        c.globalAlpha = 0.35 + 0.65 * part;
        round(c, x, y, w - 2, h - 2);
        c.globalAlpha = 1;
      }
    }
  }
}

function round(context, x, y, w, h) {
  context.beginPath();
  context.roundRect(x, y, Math.max(w, 0.5), Math.max(h, 0.5), Math.min(2, w / 3, h / 3));
  context.fill();
}

// A custom property may hold light-dark(); a real property of a hidden probe has the colour itself.
const probes = new Map();
function resolved(canvas, name) {
  const known = probes.get(name);
  if (known) return known;
  canvas.style.setProperty("outline-color", `var(${name})`);
  const value = getComputedStyle(canvas).outlineColor;
  canvas.style.removeProperty("outline-color");
  probes.set(name, value);
  return value;
}
export const forgetColours = () => probes.clear();

function* runs(points) {
  let run = [];
  for (const point of points) {
    if (point[1] !== null) run.push(point);
    else if (run.length) {
      yield run;
      run = [];
    }
  }
  if (run.length) yield run;
}

// The least of 1, 2, 5 times a power of ten that is not below the value.
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((limit) => limit >= value * 0.999);
}
