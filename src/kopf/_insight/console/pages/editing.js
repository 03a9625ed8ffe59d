// Dialogs: texts to read, and, under `kopf dev`, manifests and faults.

import { find, make, post } from "./dom.js";

export function open(title, ...content) {
  const dialog = find("dialog");
  dialog.replaceChildren(make("h2", { id: "dialog-title" }, title), ...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

export const closer = (text = "Close") => make("button", { class: "button", type: "button", onclick: () => find("dialog").close() }, text);

export function showText(title, text) {
  open(title, make("pre", { tabindex: "0" }, text), make("div", { class: "tools" }, closer()));
}

export async function editObject(address) {
  try {
    const { manifest } = await post("/api/console/dev/get", address);
    editManifest(`Edit ${address.name}`, manifest);
  } catch (error) {
    showText(`${address.name} cannot be edited`, error.message);
  }
}

export function editManifest(title, manifest) {
  const text = make("textarea", { "aria-label": "The manifest, in YAML or JSON", spellcheck: "false", value: manifest });
  const result = make("p", { class: "result", role: "status" });
  const apply = async () => {
    result.className = "result";
    result.textContent = "…";
    try {
      const { done } = await post("/api/console/dev/apply", { manifest: text.value });
      result.textContent = done.join("\n") || "Nothing to apply.";
      if (done.length) find("dialog").close();
    } catch (error) {
      result.className = "result bad";
      result.textContent = error.message;
    }
  };
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) apply();
  });
  open(title, text, result, make("div", { class: "tools" },
    make("button", { class: "button main", type: "button", onclick: apply }, "Apply (Ctrl+Enter)"), closer("Cancel")));
  text.focus();
}

export function confirmDeletion(address) {
  const result = make("p", { class: "result", role: "status" });
  const remove = async () => {
    try {
      await post("/api/console/dev/delete", address);
      find("dialog").close();
    } catch (error) {
      result.className = "result bad";
      result.textContent = error.message;
    }
  };
  open(`Delete ${address.name}?`,
    make("p", {}, `${address.resource}${address.namespace ? ` in ${address.namespace}` : ""}. Kopf will call its deletion handlers.`), result,
    make("div", { class: "tools" }, make("button", { class: "button danger", type: "button", onclick: remove }, "Delete"), closer("Cancel")));
}

const FAULTS = {
  fail: { title: "Refuse requests", make: ({ status, rate, verb }) => ({ settings: { rules: [{ status: Number(status), rate: Number(rate) / 100, ...(verb ? { verb } : {}) }] } }) },
  slow: { title: "Delay requests by 2 s", make: ({ rate }) => ({ settings: { rules: [{ action: "delay", latency: 2, rate: Number(rate) / 100 }] } }) },
  lose: { title: "Lose answers to writes", make: ({ rate }) => ({ settings: { rules: [{ action: "lose-answer", verb: "patch", rate: Number(rate) / 100 }] } }) },
  lag: { title: "Delay watch events by 1 to 3 s", make: () => ({ settings: { watch_lag: [1, 3] } }) },
  silent: { title: "Silence the streams", make: () => ({ settings: { silent: true } }) },
  cut: { title: "Break the streams now", make: () => ({ action: "cut" }) },
  compact: { title: "Drop the history of changes (410 Gone)", make: () => ({ action: "compact" }) },
};

const LEAPS = [[60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"], [86400, "1 day"], [604800, "1 week"]];

function makeLeaps() {
  const result = make("p", { class: "result", role: "status" });
  const form = make("form", { class: "form", onsubmit: async (event) => {
    event.preventDefault();
    result.className = "result";
    try {
      const { now } = await post("/api/console/dev/leap", { seconds: Number(new FormData(form).get("seconds")) });
      result.textContent = `It is now ${new Date(now).toLocaleString()} for the operator and the cluster.`;
    } catch (error) {
      result.className = "result bad";
      result.textContent = error.message;
    }
  } }, make("label", {}, "Forward by", make("select", { name: "seconds" }, ...LEAPS.map(([value, text]) => make("option", { value }, text)))),
    make("button", { class: "button main", type: "submit" }, "Leap"));
  return [
    make("h2", {}, "Time"),
    make("p", { class: "sub" }, "The operator and the cluster continue as after a long sleep: all timers, retries, and sleeps due by then end at once, each once."),
    form, result,
  ];
}

export function makeClusterView(canLeap) {
  const state = make("pre", { "aria-label": "The current faults", tabindex: "0" }, "…");
  const result = make("p", { class: "result", role: "status" });
  const send = async (content) => {
    try {
      const faults = await post("/api/console/dev/faults", content);
      state.textContent = JSON.stringify(faults, null, 2);
      result.textContent = "";
    } catch (error) {
      result.className = "result bad";
      result.textContent = error.message;
    }
  };
  const choose = (label, name, options) => make("label", {}, label, make("select", { name }, ...options.map(([value, text]) => make("option", { value }, text))));
  const form = make("form", { class: "form", onsubmit: (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    send(FAULTS[values.fault].make(values));
  } },
    choose("Fault", "fault", Object.entries(FAULTS).map(([key, fault]) => [key, fault.title])),
    choose("Status", "status", [500, 503, 429, 409, 403, 422].map((status) => [status, String(status)])),
    choose("Requests", "verb", [["", "all"], ["patch", "patch"], ["list", "list"], ["watch", "watch"], ["create", "create"], ["get", "get"]]),
    choose("Share", "rate", [[100, "all"], [50, "half"], [10, "every tenth"]]),
    make("button", { class: "button main", type: "submit" }, "Inject"),
    make("button", { class: "button", type: "button", onclick: () => send({ action: "clear" }) }, "End all faults"));
  send({});
  return [
    make("h2", {}, "Objects"),
    make("p", { class: "sub" }, "Create or replace objects by their manifests. To edit or delete an object, select it in the list."),
    make("div", { class: "tools" }, make("button", { class: "button main", type: "button", onclick: () => editManifest("Apply manifests", "") }, "Apply manifests")),
    make("h2", {}, "Faults"),
    make("p", { class: "sub" }, "The requests of the operator to the cluster fail in this way until you end the faults. The console itself is not affected."),
    form, result, state,
    ...(canLeap ? makeLeaps() : []),
  ];
}
