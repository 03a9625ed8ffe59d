// Elements are made here only. Whatever comes from the cluster, gets into the page as text, never as markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const find = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The clock of the operator is the one that counts: the page can be on another machine.
let offset = 0;
export const setClock = (now) => { offset = now - Date.now(); };
export const moveClock = (milliseconds) => { offset += milliseconds; };
export const getNow = () => Date.now() + offset;

export function formatAge(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function formatTime(milliseconds) {
  const moment = new Date(milliseconds);
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  return `${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}.${pad(moment.getMilliseconds(), 3)}`;
}

export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "—";
  return seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(1)} s`;
}

export async function fetchContent(path, options = {}) {
  const response = await fetch(path, options).catch(() => { throw new Error("the operator does not answer"); });
  const isJSON = (response.headers.get("Content-Type") || "").startsWith("application/json");
  const content = isJSON ? await response.json() : await response.text();
  if (!response.ok) throw new Error((content && content.error) || (isJSON ? response.statusText : content.trim()));
  return content;
}

// Changes are accepted as JSON only: other sites cannot send that without asking.
export const post = (path, content) => fetchContent(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
});
