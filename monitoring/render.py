"""Draw a dashboard as a picture without Grafana: its panels, in its grid, with data of a Prometheus.

    python -m monitoring.render --prometheus http://127.0.0.1:9090 --dashboard FILE.json --picture FILE.png

This is a rendering of ours for the documentation, of the same JSON and the same queries; Grafana draws more finely.
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring import svg
from monitoring.queries import interpolate

__all__ = ("Renderer", "screenshot")

_COLUMN, _UNIT, _GAP = 62, 30, 8
_POINTS = 240
_STYLE = """
body { margin: 0; padding: 12px; background: #111217; color: #ccccdc; font: 13px Inter, "DejaVu Sans", sans-serif; width: 1488px; }
h1 { font-size: 18px; font-weight: 500; margin: 0 0 4px; }
.note { color: #8e8e9c; margin-bottom: 10px; }
.grid { position: relative; }
.panel { position: absolute; background: #181b1f; border: 1px solid #25272d; border-radius: 3px; box-sizing: border-box; overflow: hidden; padding: 6px 8px; }
.row { position: absolute; font-weight: 600; font-size: 14px; padding-top: 6px; }
.title { font-weight: 500; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.stat { display: flex; align-items: center; justify-content: center; font-weight: 600; }
.legend { display: grid; grid-template-columns: 1fr auto auto; gap: 0 14px; font-size: 11px; color: #a7a7b5; }
.legend i { display: inline-block; width: 12px; height: 3px; margin-right: 6px; vertical-align: middle; }
.legend span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
table { border-collapse: collapse; width: 100%; font-size: 12px; }
th { text-align: left; color: #6e9fff; font-weight: 500; padding: 2px 8px; border-bottom: 1px solid #2c2f36; }
td { padding: 2px 8px; border-bottom: 1px solid #202329; }
.none { color: #8e8e9c; display: flex; align-items: center; justify-content: center; height: 70%; }
"""


@dataclass
class Renderer:
    """Draws dashboards.

    Args:
        prometheus: the URL of a Prometheus.
        start: the beginning, in seconds since 1970.
        end: the end.
        variables: values of the dashboards' variables; All for the others.
        note: one line below the title.
    """

    prometheus: str
    start: float
    end: float
    variables: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def page(self, dashboard: Mapping[str, Any]) -> tuple[str, int]:
        """Return a dashboard as HTML, and its height in pixels."""
        bottom = 0
        parts = []
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            left, top = place["x"] * _COLUMN, place["y"] * (_UNIT + _GAP)
            width, height = place["w"] * _COLUMN - _GAP, place["h"] * (_UNIT + _GAP) - _GAP
            bottom = max(bottom, top + height)
            where = f'style="left:{left}px;top:{top}px;width:{width}px;height:{height}px"'
            if panel["type"] == "row":
                parts.append(f'<div class="row" {where}>⌄ {html.escape(panel["title"])}</div>')
            else:
                body = self._body(panel, width - 18, height - 34)
                parts.append(
                    f'<div class="panel" {where}><div class="title">{html.escape(panel["title"])}</div>{body}</div>'
                )
        head = f"<h1>{html.escape(dashboard['title'])}</h1><div class=note>{html.escape(self.note)}</div>"
        text = f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>{head}<div class="grid">{"".join(parts)}</div>'
        return text, bottom + 80

    def _body(self, panel: Mapping[str, Any], width: int, height: int) -> str:
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "table":
            return self._table(panel, height)
        series = self._series(panel)
        if not series:
            return f'<div class="none">{html.escape(defaults.get("noValue", "No data"))}</div>'
        if panel["type"] == "stat":
            return svg.stat(series[0].values, defaults, width, height)
        if panel["type"] == "state-timeline":
            return svg.timeline(series, defaults, (self.start, self.end), width, height)
        return svg.lines(series, defaults, (self.start, self.end), width, height)

    def _series(self, panel: Mapping[str, Any]) -> list[svg.Series]:
        found = []
        step = max(1.0, (self.end - self.start) / _POINTS)
        for target in panel["targets"]:
            for result in self._get("query_range", target["expr"], start=self.start, end=self.end, step=step):
                name = _legend(target.get("legendFormat", ""), result["metric"])
                found.append(svg.Series(name, [(float(at), float(value)) for at, value in result["values"]], step))
        return found

    def _table(self, panel: Mapping[str, Any], height: int) -> str:
        organize = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
        names: dict[str, str] = organize["renameByName"]
        columns = {name: names[name] for name in sorted(names, key=organize["indexByName"].__getitem__)}
        rows = []
        for result in self._get("query", panel["targets"][0]["expr"], time=self.end):
            fields = result["metric"] | {"Value": svg.shown(float(result["value"][1]), "short")}
            rows.append([fields.get(name, "") for name in columns])
        rows = sorted(rows)[: max(0, (height - 24) // 21)]
        head = "".join(f"<th>{html.escape(each)}</th>" for each in columns.values())
        body = "".join("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"

    def _get(self, path: str, expr: str, **arguments: float) -> list[dict[str, Any]]:
        query = {"query": interpolate(expr, self.variables)} | {
            name: f"{value:.3f}" for name, value in arguments.items()
        }
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - the URL of a Prometheus that the user names
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def _legend(template: str, labels: Mapping[str, str]) -> str:
    if not template:
        return ", ".join(f"{name}={value}" for name, value in labels.items() if name != "__name__")
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


def screenshot(page: str, height: int, picture: Path) -> None:
    """Write an HTML page as a PNG of 1,512 pixels width, with headless Chromium.

    Raises:
        FileNotFoundError: there is no Chromium on PATH.
        subprocess.CalledProcessError: Chromium failed.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise FileNotFoundError("There is no Chromium on PATH: install it to draw pictures of dashboards.")
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "page.html"
        source.write_text(page, encoding="utf-8")
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={scratch}/profile",
                f"--window-size=1512,{height}", f"--screenshot={picture.absolute()}", source.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw one dashboard."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.render", description=__doc__)
    parser.add_argument("--prometheus", required=True, help="URL of a Prometheus")
    parser.add_argument("--dashboard", required=True, type=Path, help="a dashboard in JSON")
    parser.add_argument("--picture", required=True, type=Path, help="the PNG to write")
    parser.add_argument("--minutes", type=float, default=60, help="how much of the past to draw")
    given = parser.parse_args(arguments)
    end = time.time()
    renderer = Renderer(given.prometheus.rstrip("/"), end - given.minutes * 60, end)
    screenshot(*renderer.page(json.loads(given.dashboard.read_text())), given.picture)


if __name__ == "__main__":
    main()
