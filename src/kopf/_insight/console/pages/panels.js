// The views beside the objects: tables, fetched while they are visible.

import { fetchContent, formatAge, formatDuration, getNow, make } from "./dom.js";

function table(caption, columns, rows, empty) {
  const title = make("h2", {}, caption);
  if (!rows.length) return [title, make("p", { class: "empty" }, empty)];
  const head = make("tr", {}, ...columns.map(([text, style]) => make("th", { scope: "col", class: style ?? "" }, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, index) => make("td", { class: columns[index][1] ?? "" }, cell ?? ""))));
  return [title, make("table", { "aria-label": caption }, make("thead", {}, head), make("tbody", {}, ...body))];
}

const ago = (moment) => (moment ? `${formatAge(getNow() - moment)} ago` : "never");
const state = (name) => make("span", { class: `state ${name}` }, name);

function showErrors(errors, go) {
  return table("Errors by cause", [["Handler"], ["Latest error"], ["Where"], ["Count", "number"], ["Last", "short"], ["Latest objects"]],
    errors.map((error) => [
      error.who, make("span", { class: "bad" }, error.text), error.place, error.count,
      make("time", { title: new Date(error.last).toISOString() }, ago(error.last)),
      make("div", {}, ...error.examples.reverse().map(([id, name]) => make("div", {}, id ? make("button", { class: "link", type: "button", onclick: () => go(id) }, name) : name))),
    ]), "No errors.");
}

function showQueues({ queues, streams, repeated }) {
  return [
    ...table("Resources", [["Resource"], ["Waiting", "number"], ["Unfinished", "number"], ["Events", "number"], ["Last event", "short"], ["Lag", "number"], ["Handled", "number"], ["Average wait", "number"], ["Longest wait", "number"], ["Reopened", "number"], ["Latest reason"]],
      queues.sort((one, other) => (one.resource < other.resource ? -1 : 1)).map((queue) => [
        `${queue.resource}${queue.watched ? (queue.use === "operator" ? " (internal)" : "") : " (no longer watched)"}`,
        ...(queue.use === "operator" ? Array(8).fill("—") : [queue.waiting, queue.unfinished, queue.events, ago(queue.lastEvent),
          formatDuration(queue.lag), queue.done, formatDuration(queue.wait), formatDuration(queue.worstWait)]),
        queue.interruptions, queue.interruption,
      ]), "No resources yet."),
    ...table("Streams", [["Path"], ["Watched for", "number"], ["Last sign of life", "number"]],
      streams.map(([path, since, seen]) => [path, formatAge(getNow() - since), ago(seen)]), "No streams."),
    make("p", { class: "sub" }, `Lag: how late the operator's own writes arrive on the stream. Signs of life: events and bookmarks. Requests repeated after failures: ${repeated}.`),
  ];
}

function showBackground({ counts, runs }, go) {
  return [
    ...table("Daemons and timers", [["Handler"], ["Kind", "short"], ["State", "short"], ["Objects", "number"]],
      counts.map(([handler, sort, name, count]) => [handler, sort, state(name), count]), "No daemons or timers run."),
    ...(runs.length ? table("Latest runs", [["Object"], ["Handler"], ["State", "short"], ["Latest run", "short"], ["Next", "short"], ["Runs", "number"], ["Error"]],
      runs.map(([handler, id, name, current, at, next, count, error]) => [
        make("button", { class: "link", type: "button", onclick: () => go(id) }, name), handler, state(current), ago(at),
        next ? (next > getNow() ? `in ${formatAge(next - getNow())}` : "now") : "—", count, error ? make("span", { class: "bad" }, error) : "",
      ]), "") : []),
  ];
}

function showIndices(indices) {
  return table("Indices", [["Index"], ["Keys", "number"], ["Values", "number"], ["Sample keys (with the number of their values)"]],
    indices.map((index) => [index.name, index.keys, index.values,
      index.withheld ? "(withheld: they come from Secrets)" : index.examples.map(([key, count]) => `${key} (${count})`).join(", ")]),
    "The operator has no indices.");
}

function showPeers({ pause, peerings }) {
  const parts = [make("p", { class: "now" }, pause.length ? make("span", { class: "bad" }, `The operator is paused: ${pause.join("; ")}`) : "The operator is not paused.")];
  if (!peerings.length) parts.push(make("h2", {}, "Peers"), make("p", { class: "empty" }, "The operator uses no peering objects: it is standalone."));
  for (const peering of peerings) {
    parts.push(...table(`Peering ${peering.place}`, [["Operator"], ["Priority", "number"], ["Seen", "short"], ["Alive", "short"], ["Message"]],
      peering.peers.map((peer) => (peer.problem
        ? [peer.identity, "", "", "", make("span", { class: "bad" }, peer.problem)]
        : [peer.own ? `${peer.identity} (this one)` : peer.identity, peer.priority, ago(peer.seen), peer.alive ? "yes" : "no", peer.message])),
      "No operators."));
    if (peering.more) parts.push(make("p", { class: "sub" }, `And ${peering.more} more.`));
  }
  return parts;
}

const SHOWERS = { errors: showErrors, queues: showQueues, background: showBackground, indices: showIndices, peers: showPeers };

export const isPanel = (name) => name in SHOWERS;

export async function showPanel(element, name, go) {
  let content;
  try {
    content = await fetchContent(`/api/console/panel?name=${name}`);
  } catch (error) {
    return;  // the state of the connection is shown elsewhere
  }
  const text = JSON.stringify(content);
  // Unchanged content stays, except for the ages, so that the focus stays, too.
  if (element.dataset.panel === name && element.dataset.content === text && element.contains(document.activeElement)) return;
  if (element.querySelector(":active")) return;  // the click would be lost; it is refreshed again soon
  const { scrollTop } = element;
  const focused = element.contains(document.activeElement) ? document.activeElement.textContent : null;
  element.replaceChildren(...SHOWERS[name](content, go));
  element.dataset.panel = name;
  element.dataset.content = text;
  element.scrollTop = scrollTop;
  if (focused) [...element.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
}
