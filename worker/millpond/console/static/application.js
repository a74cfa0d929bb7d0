// One application: what it does, what moves and why, and what happened.

import { h, show } from "./dom.js";
import { ago, clock, count, duration, known, percent, plural, rate } from "./format.js";
import { stateOf } from "./list.js";
import { drawTasks, listenToTasks } from "./tasks.js";
import { drawTopology } from "./topology.js";

/** Draw an overview into an element. */
export function drawApplication(main, found, picture) {
  if (!main.querySelector(".application")) {
    main.replaceChildren(frame());
    listenToTasks(main.querySelector("#tasks"));
  }
  const part = (name) => main.querySelector(`#${name}`);
  const now = found.at_ms;
  show(part("summary"), summary(found));
  show(part("moves"), moves(found));
  show(part("autoscaling"), autoscaling(found.autoscaling));
  part("autoscaling").hidden = !found.autoscaling;
  show(part("conditions"), conditions(found, now));
  part("conditions").hidden = !found.conditions;
  show(part("events"), events(found, now));
  show(part("workers"), workers(found));
  drawTasks(part("tasks"), found);
  drawTopology(part("topology"), found, picture);
}

function frame() {
  const section = (id, title) => h("section", { class: "card", "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), h("div", { id }));
  const scaling = section("autoscaling", "Autoscaling");
  return h("div", { class: "application" },
    h("div", { id: "summary", class: "summary" }),
    h("div", { id: "above" }),
    h("div", { class: "columns" },
      h("div", { class: "side" }, section("moves", "Moves in progress"), scaling, section("conditions", "Conditions"), section("events", "What happened")),
      h("div", { class: "wide" }, section("topology", "Topology"), section("tasks", "Tasks by worker"), section("workers", "Workers"))));
}

function summary(found) {
  const s = found.summary;
  const figure = (label, value, bad = false) => h("div", { class: bad ? "figure bad" : "figure" }, h("dt", {}, label), h("dd", {}, value));
  const facts = [
    found.application_id && found.application_id !== s.name ? `application.id ${found.application_id}` : "",
    found.guarantee, found.image, found.revision ? `revision ${found.revision}` : "",
    found.epoch ? `assignment ${found.epoch}` : "",
  ].filter(Boolean);
  const stopped = (s.tasks_running ?? 0) < (s.tasks_total ?? 0);
  return [
    h("div", { class: "heading" }, h("h1", {}, s.name), stateOf(s), h("p", { class: "facts muted" }, facts.map((fact) => h("span", {}, fact)))),
    s.message ? h("p", { class: "said" }, s.message) : null,
    h("dl", { class: "figures" },
      figure("Workers", `${s.workers_ready ?? 0} of ${s.workers_wanted ?? 0}`, (s.workers_ready ?? 0) < (s.workers_wanted ?? 0)),
      figure("Tasks running", `${s.tasks_running ?? 0} of ${s.tasks_total ?? 0}`, stopped),
      figure("Records", rate(s.records_per_second)),
      figure("Lag", known(s.lag)),
      figure("Behind", duration(s.lag_seconds))),
  ];
}

function moves(found) {
  const all = found.moves ?? [];
  if (!all.length) return h("p", { class: "empty" }, "No task moves.");
  return h("ul", { class: "moves" }, all.slice(0, 50).map((each) => h("li", { "data-key": each.task },
    h("p", { class: "route" }, h("b", {}, each.task), " ", each.source || "nobody", h("span", { "aria-label": "to" }, " → "), each.target,
      each.lag === undefined ? null : h("span", { class: "muted" }, ` lag ${count(each.lag)}`)),
    h("p", { class: "reason" }, each.reason ?? ""))),
  all.length > 50 ? h("li", { class: "muted" }, `and ${all.length - 50} more`) : null);
}

function autoscaling(found) {
  if (!found) return null;
  const current = found.current ?? 0;
  const wanted = found.recommended ?? 0;
  const verb = found.mode === "Auto" ? "Scales" : "Recommends only";
  return [
    h("p", { class: "route" }, current === wanted ? `${verb}: ${plural(current, "worker")} are right.`.replace("1 worker are", "1 worker is") : `${verb}: ${current} → ${plural(wanted, "worker")}.`),
    found.reason ? h("p", { class: "reason" }, found.reason) : null,
    found.rescales_left === undefined ? null : h("p", { class: "muted left" }, `${plural(found.rescales_left, "rescale")} left today.`),
  ];
}

// A condition is good news or bad news by its type.
const GOOD = new Set(["Ready", "StandbysCaughtUp"]);
const NEUTRAL = new Set(["Progressing", "Suspended"]);

function conditions(found, now) {
  const all = [...(found.conditions ?? [])].sort((one, other) => (other.since_ms ?? 0) - (one.since_ms ?? 0));
  return h("ol", { class: "story" }, all.map((each) => {
    const holds = each.status === "True";
    const kind = NEUTRAL.has(each.type) ? (holds ? "wait" : "calm") : holds === GOOD.has(each.type) ? (GOOD.has(each.type) ? "good" : "calm") : "bad";
    const sign = { good: "✓", bad: "!", wait: "…", calm: "–" }[kind];
    return entry(each.type, kind, sign, `${sentence(each)}`, each.message, each.since_ms, now);
  }));
}

const WORDS = new Map([
  ["Ready", ["Ready", "Not ready"]],
  ["Progressing", ["In progress", "Nothing in progress"]],
  ["Degraded", ["Degraded", "Not degraded"]],
  ["StandbysCaughtUp", ["Standbys caught up", "Standbys behind"]],
  ["Suspended", ["Suspended", "Not suspended"]],
]);

/** Say a condition as a sentence: "Not ready", "Degraded, NoBrokers". */
function sentence(each) {
  const words = WORDS.get(each.type);
  const word = each.status === "Unknown" || !words ? `${each.type}: ${each.status}` : words[each.status === "True" ? 0 : 1];
  return each.reason && each.reason !== each.type ? `${word} (${each.reason})` : word;
}

function events(found, now) {
  const all = found.events ?? [];
  if (!all.length) return h("p", { class: "empty" }, "No events yet.");
  return h("ol", { class: "story" }, all.map((each) => entry(`${each.at_ms} ${each.reason} ${each.text}`, each.warning ? "bad" : "calm", each.warning ? "!" : "·", each.reason, each.count > 1 ? `${each.text} (${each.count} times)` : each.text, each.at_ms, now)));
}

function entry(key, kind, sign, title, text, at, now) {
  return h("li", { "data-key": key, class: kind },
    h("span", { class: "sign", "aria-hidden": "true" }, sign),
    h("div", {},
      h("p", { class: "title" }, title, at ? h("time", { datetime: new Date(at).toISOString(), title: new Date(at).toISOString() }, `${clock(at, now)} · ${ago(at, now)}`) : null),
      text ? h("p", { class: "reason" }, text) : null));
}

const SIGNS = new Map([["alive", ["good", "✓"]], ["draining", ["wait", "↗"]], ["starting", ["wait", "…"]], ["gone", ["bad", "✕"]]]);

function workers(found) {
  const all = found.workers ?? [];
  if (!all.length) return h("p", { class: "empty" }, "No worker has reported yet.");
  const node = all.some((each) => each.node);
  const heads = ["Worker", "State", "Active", "Copies", "Records", "Busy", "Lag", "Disk", ...(node ? ["Node"] : [])];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of workers" },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head, at) => h("th", { scope: "col", class: at > 1 && at < 8 ? "number" : null }, head)))),
      h("tbody", {}, all.map((each) => {
        const [kind, sign] = SIGNS.get(each.state) ?? ["wait", "…"];
        const silent = each.state === "alive" && (each.silent_ms ?? 0) > 5000;
        return h("tr", { "data-key": each.worker },
          h("th", { scope: "row" }, each.worker, each.trouble ? h("span", { class: "message" }, each.trouble) : null),
          h("td", {}, h("span", { class: `state ${kind}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), each.state), silent ? h("span", { class: "message" }, `silent for ${duration(each.silent_ms / 1000)}`) : null),
          h("td", { class: "number" }, count(each.active ?? 0)),
          h("td", { class: "number" }, count((each.standby ?? 0) + (each.warm_up ?? 0)), each.restoring ? h("span", { class: "message" }, `${each.restoring} restoring`) : null),
          h("td", { class: "number" }, rate(each.records_per_second)),
          h("td", { class: "number" }, percent(each.utilisation)),
          h("td", { class: "number" }, known(each.lag)),
          h("td", { class: (each.volume_used ?? 0) > 0.85 ? "number bad" : "number" }, percent(each.volume_used)),
          node ? h("td", {}, each.node ?? "") : null);
      }))));
}
