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

  // The samples of the first of these names that the server has; a cluster has one a replica.
  samples(...names) {
    for (const name of names) {
      const found = [...this.values].filter(([key]) => key === name || key.startsWith(`${name}{`));
      if (found.length) return new Map(found);
    }
    return new Map();
  }

  // The sum over a name's samples; null when there are none.
  value(...names) {
    const found = this.samples(...names);
    return found.size ? [...found.values()].reduce((sum, value) => sum + value, 0) : null;
  }

  // Sums of a name's samples by the value of one label.
  byLabel(name, label) {
    const found = new Map();
    const pattern = new RegExp(`(?:\\{|,)${label}="([^"]*)"`);
    for (const [key, value] of this.samples(name)) {
      const match = pattern.exec(key);
      if (match) found.set(match[1], (found.get(match[1]) ?? 0) + value);
    }
    return found;
  }
}

// How much counters grew; null when unknown. One that fell belongs to a server that was restarted,
// and one that is new to a replica whose earlier work is not of this time.
export function growth(before, after, ...names) {
  const old = before?.samples(...names);
  const now = after?.samples(...names);
  if (!old?.size || !now?.size) return null;
  let grown = 0;
  for (const [key, b] of now) {
    const a = old.get(key) ?? b;
    grown += b < a ? b : b - a;
  }
  return grown;
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
