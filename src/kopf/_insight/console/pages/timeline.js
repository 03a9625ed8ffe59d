// The timeline of one object: fetched when the object changes, only its new entries.

import { fetchContent, formatTime, make } from "./dom.js";

const LEVELS = ["info", "warning", "error"];
const SORTS = { seen: "seen", look: "decision", attempt: "attempt", patch: "patch", event: "event", log: "log", error: "error", stream: "stream", request: "request", pause: "pause" };
const SIGNS = { "+": "plus", "-": "minus", "~": "tilde" };
const MAX_ENTRIES = 100;

export class Timeline {
  constructor(id) {
    this.id = id;
    this.last = 0;
    this.isBusy = this.isStale = this.isClosed = false;
    this.hidden = new Set();
    this.list = make("ol", { class: "timeline", "aria-label": "Timeline, the latest first", reversed: true });
    this.chips = make("div", { class: "tools", role: "group", "aria-label": "What to show" });
    this.empty = make("p", { class: "empty" }, "No history for this object.");
    this.element = make("div", {}, this.chips, this.list, this.empty);
    this.sorts = new Set();
  }

  async refresh() {
    if (this.isBusy) { this.isStale = true; return; }
    this.isBusy = true;
    try {
      do {
        this.isStale = false;
        const entries = await fetchContent(`/api/console/timeline?id=${this.id}&after=${this.last}`).catch(() => []);
        if (this.isClosed) return;
        this.show(entries);
        if (this.isStale) await new Promise((resolve) => setTimeout(resolve, 200));
      } while (this.isStale && !this.isClosed);
    } finally {
      this.isBusy = false;
    }
  }

  show(entries) {
    for (const entry of entries) {
      this.last = Math.max(this.last, entry[0]);
      this.insert(this.makeEntry(entry), entry[1]);
    }
    while (this.list.childElementCount > MAX_ENTRIES) this.list.lastElementChild.remove();
    this.empty.hidden = this.list.childElementCount > 0;
  }

  // Some entries come late, and are older than the latest ones.
  insert(element, time) {
    element.dataset.time = time;
    const older = [...this.list.children].find((other) => Number(other.dataset.time) <= time);
    this.list.insertBefore(element, older ?? null);
  }

  makeEntry([, time, sort, level, text, lines = []]) {
    if (!this.sorts.has(sort)) this.addChip(sort);
    const moment = new Date(time).toISOString();
    const details = lines.length ? make("div", { class: "lines" }, ...lines.map((line) => make("div", { class: SIGNS[line[0]] ?? "" }, line))) : null;
    const element = make("li", { class: LEVELS[level] ?? "info", "data-sort": sort },
      make("time", { datetime: moment, title: moment }, formatTime(time)),
      make("span", { class: "sortname" }, SORTS[sort] ?? sort),
      make("div", {}, make("div", { class: "text" }, text), details));
    element.hidden = this.hidden.has(sort);
    return element;
  }

  addChip(sort) {
    this.sorts.add(sort);
    const chip = make("button", { class: "chip", type: "button", "aria-pressed": "true", onclick: () => {
      const isShown = chip.getAttribute("aria-pressed") !== "true";
      chip.setAttribute("aria-pressed", String(isShown));
      if (isShown) this.hidden.delete(sort);
      else this.hidden.add(sort);
      for (const item of this.list.children) item.hidden = this.hidden.has(item.dataset.sort);
    } }, SORTS[sort] ?? sort);
    this.chips.append(chip);
  }

  close() {
    this.isClosed = true;
  }
}
