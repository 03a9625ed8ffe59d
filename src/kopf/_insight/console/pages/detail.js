// The selected object: its state, its timeline, its explanation, and, under `kopf dev`, its manifest.

import { fetchContent, find, formatAge, getNow, make, setText } from "./dom.js";
import { closer, confirmDeletion, editObject, open } from "./editing.js";
import { makeReport } from "./report.js";
import { Timeline } from "./timeline.js";

export class Detail {
  constructor(store, onLeave) {
    this.store = store;
    this.onLeave = onLeave;
    this.element = find("detail");
    this.view = find("view-objects");
    this.row = null;
    this.timeline = null;
    this.clear();
  }

  clear() {
    this.timeline?.close();
    this.row = this.timeline = null;
    this.view.classList.remove("chosen");
    this.element.replaceChildren(make("p", { class: "empty" }, "Select an object with the mouse or the arrow keys to see its timeline."));
  }

  show(row, isDev) {
    if (!row) { this.clear(); return; }
    if (this.row?.id === row.id) { this.update(row); return; }
    this.timeline?.close();
    this.row = row;
    const [, resource, , isSecret] = this.store.getKind(row);
    this.address = { resource, namespace: row.namespace || null, name: row.name };
    this.timeline = new Timeline(row.id);
    this.state = make("span", { class: "state" });
    this.age = make("span", { class: "sub" });
    this.note = make("span", { class: "text" });
    const tools = [
      make("button", { class: "button back", type: "button", onclick: this.onLeave }, "← Objects"),
      make("button", { class: "button", type: "button", onclick: () => this.explain() }, "Explain"),
    ];
    if (isDev) {
      if (!isSecret) tools.push(make("button", { class: "button", type: "button", onclick: () => editObject(this.address) }, "Edit"));
      tools.push(make("button", { class: "button danger", type: "button", onclick: () => confirmDeletion(this.address) }, "Delete"));
    }
    this.element.replaceChildren(
      make("h2", {}, row.name),
      make("p", { class: "sub" }, row.namespace ? `${resource} in ${row.namespace}` : resource),
      make("p", { class: "now" }, this.state, this.age, this.note),
      make("div", { class: "tools" }, ...tools),
      this.timeline.element);
    this.view.classList.add("chosen");
    this.element.scrollTop = 0;
    this.update(row);
    this.timeline.refresh();
  }

  update(row) {
    this.row = row;
    this.state.className = `state ${row.state}`;
    setText(this.state, row.state);
    const now = getNow();
    const next = row.next > now ? `, again in ${formatAge(row.next - now)}` : "";
    setText(this.age, `for ${formatAge(now - row.since)}${next}`);
    setText(this.note, row.note);
  }

  // The row has changed, so there can be more on the timeline.
  refresh() {
    this.timeline?.refresh();
  }

  async explain() {
    const { resource, namespace, name } = this.address;
    const query = new URLSearchParams({ resource, name, ...(namespace ? { namespace } : {}) });
    const content = await fetchContent(`/api/console/explanation?${query}`).then(
      makeReport, (error) => make("p", { class: "result" }, `No explanation: ${error.message}`));
    open(`Explanation of ${name}`, content, make("div", { class: "tools" }, closer()));
  }
}
