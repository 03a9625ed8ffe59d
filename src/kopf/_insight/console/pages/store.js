// The objects as the page knows them, and which of them are to be listed in which order.

export const STATES = ["failed", "retrying", "handling", "queued", "idle", "gone"];

export class Store {
  constructor() {
    this.filter = { text: "", kind: "", states: new Set(STATES.filter((state) => state !== "gone")), order: "state" };
    this.reset();
  }

  reset() {
    this.rows = new Map();
    this.kinds = [];
    this.sorted = null;
    this.listed = [];
    this.counts = {};
  }

  take(rows) {
    for (const [id, kind, namespace, name, state, since, next, note] of rows) {
      const known = this.rows.get(id);
      if (kind === undefined) {
        this.rows.delete(id);
        this.sorted = null;
      } else if (known) {
        Object.assign(known, { state, since, next, note });
      } else {
        const key = `${namespace}/${name}`;
        this.rows.set(id, { id, kind, namespace, name, state, since, next, note, key, text: key.toLowerCase() });
        this.sorted = null;
      }
    }
  }

  // Names do not change, so the order by names is only made anew when objects come or go.
  list() {
    this.sorted ??= [...this.rows.values()].sort(compareKeys);
    const { text, kind, states, order } = this.filter;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    this.listed = this.sorted.filter((row) => {
      if (kind !== "" && row.kind !== Number(kind)) return false;
      if (words.length && !words.every((word) => row.text.includes(word) || row.note.toLowerCase().includes(word))) return false;
      counts[row.state] += 1;
      return states.has(row.state);
    });
    if (order === "changed") this.listed.sort((one, other) => other.since - one.since || compareKeys(one, other));
    if (order === "state") {
      const ranks = Object.fromEntries(STATES.map((state, rank) => [state, rank]));
      this.listed.sort((one, other) => ranks[one.state] - ranks[other.state] || compareKeys(one, other));
    }
    this.counts = counts;
    return this.listed;
  }

  getKind(row) {
    return this.kinds[row.kind] ?? [row.kind, "", "", false];
  }

  // Ids are of one life of the operator; names remain.
  findLike(row) {
    const [, resource] = row.resource ? [0, row.resource] : this.getKind(row);
    for (const other of this.rows.values()) {
      if (other.key === row.key && other.state !== "gone" && this.getKind(other)[1] === resource) return other;
    }
    return null;
  }
}

const compareKeys = (one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : one.id - other.id);
