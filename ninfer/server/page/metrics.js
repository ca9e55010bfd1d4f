// Prometheus text to numbers, and two readings of it to what happened between them.

// Map from name, labels in braces included as written, to value.
export function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const end = line.lastIndexOf("}");
    const space = line.indexOf(" ", end < 0 ? 0 : end);
    const value = Number(line.slice(space + 1).split(" ")[0].replace("Inf", "Infinity"));
    if (space > 0 && !Number.isNaN(value)) values.set(line.slice(0, space), value);
  }
  return values;
}

export class Reading {
  constructor(time, values) {
    this.time = time; // milliseconds
    this.values = values;
  }

  // The value of the first of these names that the server has.
  value(...names) {
    for (const name of names) {
      const exact = this.values.get(name);
      if (exact !== undefined) return exact;
      for (const [key, value] of this.values) if (key.startsWith(`${name}{`)) return value;
    }
    return null;
  }

  // All values of a name with one label, by the label's value.
  byLabel(name, label) {
    const found = new Map();
    const pattern = new RegExp(`(?:\\{|,)${label}="([^"]*)"`);
    for (const [key, value] of this.values) {
      const match = key.startsWith(`${name}{`) && pattern.exec(key);
      if (match) found.set(match[1], value);
    }
    return found;
  }
}

// How much a counter grew; null when unknown. One that fell belongs to a server that was restarted.
export function growth(before, after, ...names) {
  const b = after?.value(...names) ?? null;
  const a = before?.value(...names) ?? null;
  if (a === null || b === null) return null;
  return b < a ? b : b - a;
}

export function perSecond(before, after, ...names) {
  const grown = growth(before, after, ...names);
  const seconds = before && after ? (after.time - before.time) / 1000 : 0;
  return grown === null || seconds <= 0 ? null : grown / seconds;
}

export function share(part, whole) {
  return part === null || whole === null || whole <= 0 ? null : part / whole;
}

// Buckets of a histogram as [upper bound, count in this bucket], ascending.
export function buckets(reading, name) {
  const bounds = [...reading.byLabel(`${name}_bucket`, "le")]
    .map(([bound, count]) => [bound === "+Inf" ? Infinity : Number(bound), count])
    .sort((a, b) => a[0] - b[0]);
  return bounds.map(([bound, count], i) => [bound, count - (i ? bounds[i - 1][1] : 0)]);
}

// The bound below which the given part of all counts lies; null without counts.
export function quantile(counts, part) {
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return null;
  let sum = 0;
  for (const [bound, count] of counts) {
    sum += count;
    if (sum >= part * total) return bound;
  }
  return null;
}
