// The list: only the visible rows are in the page, however many objects there are.

import { formatAge, getNow, make, setText } from "./dom.js";

const MARGIN = 6;

export class List {
  constructor(element, store, onSelect) {
    this.element = element;
    this.store = store;
    this.onSelect = onSelect;
    this.space = element.firstElementChild;
    this.pool = [];
    this.selected = null;
    element.addEventListener("scroll", () => this.draw(), { passive: true });
    element.addEventListener("keydown", (event) => this.accept(event));
    element.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.measure()).observe(element);
    this.measure();
  }

  // The rows are higher on narrow screens, as the style says.
  measure() {
    this.height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row"));
    if (this.rows) this.place();
  }

  update() {
    this.rows = this.store.list();
    this.place();
  }

  place() {
    this.space.style.height = `${this.rows.length * this.height}px`;
    this.draw();
  }

  draw() {
    if (!this.rows) return;
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - MARGIN);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / this.height) + MARGIN);
    const now = getNow();
    const total = String(this.rows.length);
    let active = "";
    for (let index = first; index < last; index += 1) {
      const place = this.pool[index - first] ?? this.grow();
      this.fill(place, this.rows[index], index, total, now);
      if (this.rows[index].id === this.selected) active = place.element.id;
    }
    for (let index = Math.max(0, last - first); index < this.pool.length; index += 1) this.pool[index].element.hidden = true;
    if (active) this.element.setAttribute("aria-activedescendant", active);
    else this.element.removeAttribute("aria-activedescendant");
  }

  grow() {
    const place = {
      state: make("span", { class: "state" }), space: make("span", { class: "space" }), name: make("span"),
      sort: make("span", { class: "sort" }), age: make("span", { class: "for" }), note: make("span", { class: "note" }),
    };
    place.element = make("div", { class: "row", role: "option", id: `row-${this.pool.length}` },
      place.state, make("span", { class: "what" }, place.space, place.name, place.sort), place.age, place.note);
    this.pool.push(place);
    this.space.append(place.element);
    return place;
  }

  fill(place, row, index, total, now) {
    const { element } = place;
    element.hidden = false;
    place.id = row.id;
    const top = `translateY(${index * this.height}px)`;
    if (element.style.transform !== top) element.style.transform = top;
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", total);
    element.setAttribute("aria-selected", row.id === this.selected ? "true" : "false");
    const style = `state ${row.state}`;
    if (place.state.className !== style) place.state.className = style;
    setText(place.state, row.state);
    setText(place.space, row.namespace ? `${row.namespace}/` : "");
    setText(place.name, row.name);
    setText(place.sort, this.store.filter.kind === "" && this.store.kinds.length > 1 ? this.store.getKind(row)[2] : "");
    setText(place.age, formatAge(now - row.since));
    const next = row.next > now ? `in ${formatAge(row.next - now)}` : "";
    setText(place.note, [next, row.note].filter(Boolean).join(": "));
  }

  click(event) {
    const element = event.target.closest(".row");
    const place = element && this.pool.find((item) => item.element === element);
    if (place) this.select(place.id);
  }

  accept(event) {
    if (!this.rows?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const current = this.rows.findIndex((row) => row.id === this.selected);
    const index = Math.min(this.rows.length - 1, Math.max(0, current + steps[event.key]));
    this.select(this.rows[index].id);
    this.reveal(index);
  }

  reveal(index) {
    const top = index * this.height;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.height > this.element.scrollTop + this.element.clientHeight) {
      this.element.scrollTop = top + this.height - this.element.clientHeight;
    }
  }

  select(id) {
    this.selected = id;
    this.draw();
    this.onSelect(this.store.rows.get(id) ?? null);
  }
}
