// The grid of tasks: a row for each worker, and the arrow keys move in it.

import { h, show } from "./dom.js";
import { count, duration, known, rate } from "./format.js";

const STATES = {
  running: ["●", "running"],
  restoring: ["◐", "restoring"],
  acquiring: ["○", "looking up its owner"],
  releasing: ["↗", "being handed over"],
  none: ["✕", "not held by a worker"],
};
const COPIES = { standby: ["S", "standby"], "warm-up": ["W", "warm-up"] };
let selected = "";
let last = null;

/** Draw the tasks of an overview. */
export function drawTasks(element, found) {
  last = { element, found };
  const rows = byWorker(found);
  const cells = rows.flatMap((row) => row.cells);
  if (!cells.length) return show(element, h("p", { class: "empty" }, "The tasks are not known until a worker has reported them."));
  const current = cells.find((cell) => cell.key === selected) ?? cells[0];
  show(element,
    h("div", { class: "grid", role: "grid", "aria-label": "Tasks by worker: the arrow keys move from task to task", "data-key": "grid" },
      rows.map((row) => h("div", { class: "row", role: "row", "data-key": row.worker },
        h("span", { class: "rowheader", role: "rowheader" }, row.worker || "no worker", row.note ? h("span", { class: "muted" }, ` ${row.note}`) : null),
        h("span", { class: "cells", role: "presentation" }, row.cells.map((cell) => h("span", {
          class: `cell ${cell.kind}`, role: "gridcell", "data-key": cell.key, "data-task": cell.task.task,
          tabindex: cell === current ? "0" : "-1", "aria-label": cell.label, title: cell.label,
        }, h("span", { class: "glyph" }, cell.glyph), cell.task.task)))))),
    h("p", { class: "details", "data-key": "details" }, selected && current.key === selected ? details(current) : "Choose a task to see its details."),
    legend());
}

function byWorker(found) {
  const rows = new Map((found.workers ?? []).map((each) => [each.worker, { worker: each.worker, note: each.state === "alive" ? "" : each.state, cells: [] }]));
  const rowOf = (worker) => {
    if (!rows.has(worker)) rows.set(worker, { worker, note: "", cells: [] });
    return rows.get(worker);
  };
  for (const task of found.tasks ?? []) {
    const state = task.state || "none";
    const [glyph, words] = Object.hasOwn(STATES, state) ? STATES[state] : ["?", state];
    const figures = state === "running" ? `, ${rate(task.records_per_second)}, lag ${known(task.lag)}` : "";
    rowOf(task.worker ?? "").cells.push({ key: `${task.task} active`, kind: `active ${state}`, glyph, task, words, label: `Task ${task.task}, active, ${words}${figures}` });
  }
  for (const task of found.tasks ?? []) {
    for (const [role, copies] of [["standby", task.standbys ?? []], ["warm-up", task.warm_ups ?? []]]) {
      for (const copy of copies) {
        const words = copy.state === "running" ? "follows its changelog" : copy.state || "not held yet";
        const lag = copy.lag === undefined ? "" : `, lag ${count(copy.lag)}`;
        rowOf(copy.worker).cells.push({ key: `${task.task} ${role} ${copy.worker}`, kind: role, glyph: COPIES[role][0], task, words, label: `Task ${task.task}, ${role}, ${words}${lag}` });
      }
    }
  }
  return [...rows.values()];
}

function details(cell) {
  const task = cell.task;
  const parts = [
    h("b", {}, cell.label), ".",
    task.owner ? ` Owner in Kafka: ${task.owner}.` : "",
    task.restoring ? ` ${count(task.restoring)} changelog records to restore.` : "",
    task.lag_seconds === undefined ? "" : ` ${duration(task.lag_seconds)} behind.`,
    task.note ? ` ${task.note}.` : "",
  ];
  return parts.filter(Boolean);
}

function legend() {
  const active = Object.entries(STATES).map(([state, [glyph, words]]) => item(`active ${state}`, glyph, words));
  const copies = Object.entries(COPIES).map(([kind, [glyph, words]]) => item(kind, glyph, words));
  return h("ul", { class: "legend", "aria-label": "Legend", "data-key": "legend" }, active, copies);
}

const item = (kind, glyph, words) => h("li", {}, h("span", { class: `cell ${kind}`, "aria-hidden": "true" }, h("span", { class: "glyph" }, glyph)), words);

/** Select tasks by focus and by arrow keys. */
export function listenToTasks(element) {
  element.addEventListener("focusin", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell || cell.dataset.key === selected) return;
    selected = cell.dataset.key;
    drawTasks(last.element, last.found);
  });
  element.addEventListener("click", (event) => event.target.closest("[role=gridcell]")?.focus());
  element.addEventListener("keydown", (event) => {
    const cell = event.target.closest("[role=gridcell]");
    const next = cell && neighbour(cell, event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}

function neighbour(cell, key) {
  const row = cell.closest(".row");
  const cells = [...row.querySelectorAll("[role=gridcell]")];
  const at = cells.indexOf(cell);
  if (key === "ArrowRight") return cells[at + 1];
  if (key === "ArrowLeft") return cells[at - 1];
  if (key === "Home") return cells[0];
  if (key === "End") return cells[cells.length - 1];
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  const sibling = key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
  for (let other = row[sibling]; other; other = other[sibling]) {
    const found = [...other.querySelectorAll("[role=gridcell]")];
    if (found.length) return found[Math.min(at, found.length - 1)];
  }
  return null;
}
