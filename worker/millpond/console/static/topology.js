// The picture of the topology: drawn by the server, with live figures filled in here.

import { h } from "./dom.js";
import { known, rate } from "./format.js";

/** A wider picture gets a row of its own. */
const WIDE_PX = 880;
let shown = "";

/** Show the picture, fetching it again only if the topology is another one. */
export function drawTopology(element, found, address) {
  const wanted = found.drawing ? `${address} ${found.drawing}` : "";
  if (!wanted) {
    shown = "";
    if (!element.querySelector(".empty")) element.replaceChildren(h("p", { class: "empty" }, "No worker has reported its topology yet."));
    return;
  }
  if (shown === wanted && element.firstElementChild) return fill(element, found);
  shown = wanted;
  fetchPicture(element, found, address, wanted);
}

async function fetchPicture(element, found, address, wanted) {
  try {
    const response = await fetch(address, { credentials: "same-origin", cache: "no-store" });
    if (shown !== wanted) return;
    if (response.status === 404) {
      element.replaceChildren(h("p", { class: "empty" }, "This topology is too large to draw."));
      return;
    }
    if (!response.ok) throw new TypeError(`status ${response.status}`);
    const parsed = new DOMParser().parseFromString(await response.text(), "image/svg+xml");
    if (shown !== wanted || parsed.querySelector("parsererror")) return;
    const svg = document.importNode(parsed.documentElement, true);
    const width = Number(svg.getAttribute("width"));
    svg.style.maxWidth = `${width}px`;
    svg.style.minWidth = `${Math.min(width, Math.max(width * 0.7, 420))}px`;
    place(element, width > WIDE_PX);
    element.replaceChildren(h("div", { class: "scroll picture", tabindex: "0", role: "region", "aria-label": "Picture of the topology" }));
    element.firstElementChild.append(svg);
    fill(element, found);
  } catch {
    shown = ""; // the next answer tries again
  }
}

/** Give a wide picture a row of its own, below that of the moves: they stay on the first screen. */
function place(element, wide) {
  const topology = element.closest("section");
  const moves = document.querySelector("#moves").closest("section");
  const above = document.querySelector("#above");
  if (wide === (topology.parentElement === above)) return;
  if (wide) {
    above.append(moves, topology);
  } else {
    document.querySelector(".wide").prepend(topology);
    document.querySelector(".side").prepend(moves);
  }
}

function fill(element, found) {
  const edges = new Map();
  for (const edge of found.topology?.edges ?? []) if (edge.topic) edges.set(`${edge.topic}\n${edge.target}`, edge);
  for (const text of element.querySelectorAll("text[data-topic]")) {
    const edge = edges.get(`${text.dataset.topic}\n${text.dataset.node}`);
    const has = edge && (edge.records_per_second !== undefined || edge.lag !== undefined);
    say(text.querySelector(".rate"), has ? rate(edge.records_per_second) : "");
    say(text.querySelector(".lag"), has ? `lag ${known(edge.lag)}` : "");
    text.classList.toggle("behind", Boolean(has && edge.lag > (edge.records_per_second ?? 0))); // more than a second
  }
  for (const text of element.querySelectorAll("text[data-part]")) {
    const tasks = (found.tasks ?? []).filter((task) => task.task.startsWith(`${text.dataset.part}_`));
    const running = tasks.filter((task) => task.state === "running").length;
    say(text.querySelector(".rate"), tasks.length ? `${running} of ${tasks.length} running` : "");
    text.classList.toggle("stopped", running < tasks.length);
  }
}

function say(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}
