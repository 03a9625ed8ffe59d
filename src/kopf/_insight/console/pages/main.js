// The page: updates from the operator go to the store, and from there to the visible rows.

import { Detail } from "./detail.js";
import { find, getNow, make, moveClock, setClock, setText } from "./dom.js";
import { makeClusterView } from "./editing.js";
import { List } from "./list.js";
import { isPanel, showPanel } from "./panels.js";
import { STATES, Store } from "./store.js";
import { Timeline } from "./timeline.js";

const REFRESHING = 2000;

const store = new Store();
const detail = new Detail(store, leave);
const list = new List(find("list"), store, (row) => select(row));
let state = { dev: false, ahead: null, pause: [], forgotten: 0 };
let view = "objects";
let operatorTimeline = null;
let isPlanned = false;
let wanted = parseHash();
let awaited = null;  // what was chosen in a panel before its row has come

function parseHash() {
  const [resource, namespace, name] = decodeURIComponent(location.hash.slice(1)).split("/");
  return name ? { resource, key: `${namespace}/${name}` } : null;
}

function select(row) {
  awaited = null;
  detail.show(row, state.dev);
  if (!row) return;
  if (isListHidden()) find("detail").focus();
  wanted = { resource: store.getKind(row)[1], key: row.key };
  history.replaceState(null, "", `#${encodeURIComponent(`${wanted.resource}/${row.key}`)}`);
}

// On narrow screens, either the list is visible, or what is selected.
const isListHidden = () => find("list").offsetParent === null;

function leave() {
  if (isListHidden()) {
    wanted = null;
    history.replaceState(null, "", location.pathname);
    list.select(null);
  }
  find("list").focus();
}

// ------------------------------------------------------------------ what comes from the operator

function connect() {
  const source = new EventSource("/api/console/updates");
  source.addEventListener("reset", (event) => {
    setClock(JSON.parse(event.data));
    state.ahead = null;
    store.reset();
    awaited = null;
    list.selected = null;
  });
  source.addEventListener("state", (event) => acceptState(JSON.parse(event.data)));
  source.addEventListener("rows", (event) => acceptRows(JSON.parse(event.data)));
  source.addEventListener("ready", () => {
    setConnection("live", "live");
    showNotice();
    if (list.selected === null) detail.clear();
    plan();
  });
  source.addEventListener("error", () => {
    setConnection("lost", "lost");
    showNotice("The operator does not answer. This data is old. Trying again…");
    if (source.readyState === EventSource.CLOSED) reconnect();
  });
}

// The operator has answered, but with an error, which browsers do not tell.
async function reconnect() {
  setTimeout(connect, REFRESHING);
  const { status } = await fetch("/api/console/panel?name=peers").catch(() => ({}));
  if (status === 401) showNotice("The operator has a new token. Open the new address, which the operator or kopf dev prints.");
}

function showNotice(problem) {
  const text = problem ?? (state.pause.length ? `The operator is paused: ${state.pause.join("; ")}` : "");
  find("notice").hidden = !text;
  setText(find("notice"), text);
}

function setConnection(name, text) {
  find("connection").dataset.state = name;
  setText(find("connection"), text);
}

function acceptState(content) {
  if (state.ahead !== null) moveClock((content.ahead - state.ahead) * 1000);
  state = content;
  store.kinds = content.kinds;
  find("tab-cluster").hidden = !content.dev;
  showNotice();
  const chosen = find("kind").value;
  find("kind").replaceChildren(make("option", { value: "" }, "All kinds"), ...content.kinds.map(([number, resource]) => make("option", { value: number }, resource)));
  find("kind").value = [...find("kind").options].some((option) => option.value === chosen) ? chosen : "";
  plan();
}

function acceptRows(rows) {
  store.take(rows);
  if (detail.row && rows.some(([id]) => id === detail.row.id)) detail.refresh();
  plan();
}

// Everything that has come meanwhile is drawn at once, when the browser is about to paint.
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  (document.hidden ? (draw) => setTimeout(draw, 200) : requestAnimationFrame)(() => {
    isPlanned = false;
    draw();
  });
}

function draw() {
  list.update();
  selectAwaited();
  selectWanted();
  const row = detail.row && store.rows.get(detail.row.id);
  if (row) detail.update(row);
  for (const chip of find("states").children) setText(chip.lastChild, String(store.counts[chip.dataset.state] ?? 0));
  const forgotten = state.forgotten ? `, ${state.forgotten} forgotten to save memory` : "";
  setText(find("count"), `${store.listed.length} of ${store.rows.size} objects are listed${forgotten}`);
}

// ------------------------------------------------------------------ what comes from the user

function prepareFilters() {
  for (const name of STATES) {
    const chip = make("button", { class: "chip", type: "button", "data-state": name, "aria-pressed": String(store.filter.states.has(name)), onclick: () => {
      const isOn = store.filter.states.has(name);
      if (isOn) store.filter.states.delete(name);
      else store.filter.states.add(name);
      chip.setAttribute("aria-pressed", String(!isOn));
      plan();
    } }, `${name} `, make("b", {}, "0"));
    find("states").append(chip);
  }
  find("search").addEventListener("input", (event) => { store.filter.text = event.target.value; list.element.scrollTop = 0; plan(); });
  find("kind").addEventListener("change", (event) => { store.filter.kind = event.target.value; list.element.scrollTop = 0; plan(); });
  find("order").addEventListener("change", (event) => { store.filter.order = event.target.value; plan(); });
  find("filters").addEventListener("submit", (event) => { event.preventDefault(); find("list").focus(); });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select") || find("dialog").open;
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      show("objects");
      find("search").focus();
    }
  });
  find("list").addEventListener("keydown", (event) => { if (event.key === "Enter") find("detail").focus(); });
  find("detail").addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });
}

const getTabs = () => [...find("tabs").children].filter((tab) => !tab.hidden);

function prepareTabs() {
  find("tabs").addEventListener("click", (event) => { if (event.target.id) show(event.target.id.slice(4)); });
  find("tabs").addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (!(event.key in steps)) return;
    const tabs = getTabs();
    const tab = tabs[(tabs.indexOf(event.target) + steps[event.key] + tabs.length) % tabs.length];
    show(tab.id.slice(4));
    tab.focus();
  });
}

function show(name) {
  if (view === name) return;
  view = name;
  for (const tab of find("tabs").children) {
    const isShown = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
  }
  const panel = find("view-panel");
  find("view-objects").hidden = name !== "objects";
  panel.hidden = name === "objects";
  panel.setAttribute("aria-labelledby", `tab-${name}`);
  panel.replaceChildren();
  operatorTimeline?.close();
  operatorTimeline = null;
  if (name === "operator") {
    operatorTimeline = new Timeline(0);
    panel.replaceChildren(make("h2", {}, "The operator"), make("p", { class: "sub" }, `Kopf ${state.version}, process ${state.pid}`), operatorTimeline.element);
  } else if (name === "cluster") {
    panel.replaceChildren(...makeClusterView(state.ahead !== null));
  }
  refresh();
}

function go(id) {
  show("objects");
  awaited = id;
  selectAwaited();
  find("detail").focus();
}

function selectAwaited() {
  const id = awaited;
  if (id === null || !store.rows.has(id)) return;
  list.select(id);
  const index = list.rows.findIndex((row) => row.id === id);
  if (index >= 0) list.reveal(index);
}

// When the operator has just started, its objects come one by one.
function selectWanted() {
  const row = wanted && list.selected === null && awaited === null && store.findLike(wanted);
  if (row) list.select(row.id);
}

function refresh() {
  if (document.hidden) return;
  if (isPanel(view)) showPanel(find("view-panel"), view, go);
  operatorTimeline?.refresh();
}

prepareFilters();
prepareTabs();
connect();
setInterval(refresh, REFRESHING);
setInterval(() => { if (!document.hidden && getNow()) plan(); }, 1000);
