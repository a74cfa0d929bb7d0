// Which page is shown, and how fresh its figures are.

import { drawApplication } from "./application.js";
import { h, show } from "./dom.js";
import { ago, clock } from "./format.js";
import { drawList } from "./list.js";

const EVERY_MS = 2000;
const TIMEOUT_MS = 5000;
const STALE_MS = 10000;

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const state = { answered: 0, at: 0, changed: 0, problem: "", document: null, address: "", round: 0 };

/** Return what the URL names: the list, or the namespace and name of an application. */
function place() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decode);
  return parts.length === 2 ? { namespace: parts[0], name: parts[1] } : null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function addressOf(where) {
  if (!where) return "../api/applications";
  return `../api/applications/${encodeURIComponent(where.namespace)}/${encodeURIComponent(where.name)}`;
}

async function poll() {
  const round = state.round;
  const where = place();
  const address = addressOf(where);
  const ended = new AbortController();
  const timer = setTimeout(() => ended.abort(), TIMEOUT_MS);
  try {
    const response = await fetch(address, { signal: ended.signal, credentials: "same-origin", cache: "no-store" });
    if (round !== state.round) return;
    if (!response.ok) {
      const type = response.headers.get("content-type") || "";
      const said = type.startsWith("text/plain") ? (await response.text()).trim().slice(0, 300) : "";
      state.problem = said || `The answer has status ${response.status}.`;
    } else {
      const found = await response.json();
      if (round !== state.round) return;
      const now = Date.now();
      if (!state.document || (found.at_ms ?? now) !== state.at) state.changed = now;
      state.at = found.at_ms ?? now;
      state.answered = now;
      state.problem = now - state.changed > STALE_MS ? "The figures do not change any more." : "";
      state.document = found;
      draw(where, address);
    }
  } catch (error) {
    if (round !== state.round) return;
    const silent = error instanceof DOMException || error instanceof TypeError;
    state.problem = silent ? "No answer." : `The answer cannot be shown: ${error.message}`;
    if (!silent) console.error(error);
  } finally {
    clearTimeout(timer);
  }
  drawFreshness();
}

function draw(where, address) {
  if (where) drawApplication(main, state.document, `${address}/topology.svg`);
  else drawList(main, state.document);
}

function drawFreshness() {
  const stale = state.problem !== "";
  document.body.classList.toggle("stale", stale);
  say(document.getElementById("status"), !stale ? "Live" : state.document ? "Not live" : "No data");
  const seen = state.answered ? `figures of ${clock(state.answered, Date.now())}` : "";
  say(document.getElementById("age"), stale && state.answered ? `${seen}, ${ago(state.answered, Date.now())}` : seen);
  banner.hidden = !stale;
  say(banner, stale && state.document ? `${state.problem} What you see is out of date.` : state.problem);
}

/** Change a text only if it differs: screen readers say each change. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function arrive() {
  const where = place();
  state.round += 1;
  Object.assign(state, { document: null, at: 0, problem: "", answered: 0 });
  const named = where ? (where.namespace === "-" ? where.name : `${where.namespace}/${where.name}`) : "";
  document.title = named ? `${named} – millpond` : "millpond console";
  show(
    document.getElementById("path"),
    where ? [h("a", { href: "#/" }, "Applications"), h("span", { "aria-hidden": "true" }, "/"), h("span", { "aria-current": "page" }, named)] : h("span", { "aria-current": "page" }, "Applications"),
  );
  main.replaceChildren();
  poll();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the URL after # names the page
  main.focus();
});
window.addEventListener("hashchange", arrive);
document.addEventListener("visibilitychange", () => document.hidden || poll());
arrive();
(async () => {
  for (;;) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    if (!document.hidden) await poll();
  }
})();
