// The list of applications.

import { h, show } from "./dom.js";
import { duration, known, rate } from "./format.js";

const chosen = { text: "", troubled: false };
let last = { main: null, found: null };

/** Draw the list into an element. */
export function drawList(main, found) {
  last = { main, found };
  const all = found.applications;
  const text = chosen.text.toLowerCase();
  const rows = all.filter(
    (each) => `${each.namespace ?? ""}/${each.name}`.toLowerCase().includes(text) && (!chosen.troubled || !isWell(each)),
  );
  const troubled = all.filter((each) => !isWell(each)).length;
  if (!main.querySelector("#filter")) main.addEventListener("input", filter);
  show(
    main,
    h("div", { class: "heading", "data-key": "heading" },
      h("h1", {}, "Applications"),
      h("p", { class: "muted" }, all.length ? `${all.length} in all, ${troubled || "none"} not ready` : ""),
      h("div", { class: "filters" },
        h("label", {}, "Name ", h("input", { type: "search", id: "filter", autocomplete: "off", value: chosen.text || null })),
        h("label", {}, h("input", { type: "checkbox", id: "troubled", checked: chosen.troubled }), " Only those that are not ready"))),
    rows.length ? table(rows) : h("p", { class: "empty", "data-key": "none" }, all.length ? "No application matches these filters." : "There are no applications yet."),
  );
}

function filter() {
  chosen.text = document.getElementById("filter")?.value ?? "";
  chosen.troubled = document.getElementById("troubled")?.checked ?? false;
  if (last.main.querySelector("#filter")) drawList(last.main, last.found);
}

const isWell = (each) => each.ready && !each.degraded;

function table(rows) {
  const heads = ["Application", "State", "Workers", "Tasks", "Records", "Lag", "Behind"];
  return h("div", { class: "card scroll", "data-key": "table", tabindex: "0", role: "region", "aria-label": "Applications" },
    h("table", { class: "list" },
      h("thead", {}, h("tr", {}, heads.map((head, at) => h("th", { scope: "col", class: at > 1 ? "number" : null }, head)))),
      h("tbody", {}, rows.map(row))));
}

function row(each) {
  const namespace = each.namespace ?? "";
  const link = `#/${encodeURIComponent(namespace || "-")}/${encodeURIComponent(each.name)}`;
  const stopped = (each.tasks_running ?? 0) < (each.tasks_total ?? 0);
  return h("tr", { "data-key": `${namespace}/${each.name}` },
    h("th", { scope: "row" },
      h("a", { href: link }, namespace ? [h("span", { class: "muted" }, `${namespace}/`), each.name] : each.name),
      !isWell(each) && each.message ? h("span", { class: "message" }, each.message) : null),
    h("td", {}, stateOf(each)),
    h("td", { class: "number" }, `${each.workers_ready ?? 0} of ${each.workers_wanted ?? 0}`),
    h("td", { class: stopped ? "number bad" : "number" }, `${each.tasks_running ?? 0} of ${each.tasks_total ?? 0}`),
    h("td", { class: "number" }, rate(each.records_per_second)),
    h("td", { class: "number" }, known(each.lag)),
    h("td", { class: "number" }, duration(each.lag_seconds)));
}

/** The state of an application as a word with a sign: it must be clear without colour. */
export function stateOf(each) {
  const [kind, sign] = each.degraded ? ["bad", "!"] : each.ready ? ["good", "✓"] : ["wait", "…"];
  const busy = each.phase && each.phase !== "Running" ? each.phase : "";
  const word = each.degraded ? `Degraded: ${each.degraded}` : each.ready ? ["Ready", busy].filter(Boolean).join(", ") : busy || "Not ready";
  return h("span", { class: `state ${kind}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word);
}
