// The explanation of an object: headings, and below them lists of lines, with their details.

import { make } from "./dom.js";

function makeLine({ text, name, mark, state, lines }) {
  return make("li", { "data-state": state },
    name ? make("strong", {}, name) : null,
    mark ? make("span", { class: "mark" }, mark) : null,
    text ? make("span", { class: "text" }, text) : null,
    lines.length ? makeList(lines) : null);
}

const makeList = (lines, attributes = {}) => make("ul", attributes, ...lines.map(makeLine));

export function makeReport({ title, summary, sections }) {
  return make("div", { class: "report", tabindex: "0" },
    make("p", { class: "sub" }, title),
    makeList(summary, { class: "summary" }),
    ...sections.flatMap((section) => [make("h3", {}, section.title), makeList(section.lines, { "aria-label": section.title })]));
}
