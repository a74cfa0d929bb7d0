"""Shapes as SVG text, and their sizes in px.

x and y are the middle of a shape, measured from the upper left corner of the picture.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from html import escape

from .graph import DrawnNode
from .layout import Point

__all__ = (
    "NODE_HEIGHT",
    "STYLE",
    "TOPIC_HEIGHT",
    "arrow",
    "escaped",
    "figures",
    "node",
    "node_width",
    "rectangle",
    "store",
    "text",
    "topic",
    "width",
)

NODE_HEIGHT, TOPIC_HEIGHT = 42.0, 34.0
_NAME, _SMALL = 8.0, 6.05
"""Widths of a letter of a name (13 px, bold) and of the text below it (10 px, fixed width)."""

_TURN = 36.0
"""How far an arrow goes on where it turns back."""

_UNSAFE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]")
_GENERATED = re.compile(r"K(?:STREAM|TABLE)-(?P<role>[A-Z-]+?)-\d{10}.*")
_ROLES = {
    "BRANCHCHILD": "branch", "FLATMAP": "flat map", "FLATMAPVALUES": "flat map values", "KEY-SELECT": "select key",
    "LEFTJOIN": "left join", "MAPVALUES": "map values", "PROCESSOR": "process", "PROCESSVALUES": "process values",
    "FK-JOIN-OUTPUT": "join", "FK-JOIN-SUBSCRIPTION-PROCESSOR": "answer",
    "FK-JOIN-SUBSCRIPTION-REGISTRATION": "subscribe",
    "FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR": "resolve",
    "TOSTREAM": "to stream", "TOTABLE": "to table", "TRANSFORMVALUES": "transform values",
}  # fmt: skip

STYLE = """
  text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2933 }
  .name, .small { text-anchor: middle } .name { font-size: 13px; font-weight: 600 }
  .title { font-size: 18px; font-weight: 600 }
  .small { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 10px; fill: #66727f }
  .back { fill: #ffffff } .box { fill: #f4f6f8; stroke: #d5dbe1 }
  .head { font-size: 12px; fill: #66727f; paint-order: stroke; stroke: #f4f6f8; stroke-width: 5px }
  .processor, .source, .sink { fill: #ffffff }
  .processor { stroke: #9aa7b4 } .source { stroke: #2f855a } .sink { stroke: #b7562b }
  .topic { fill: #e3effb; stroke: #3b78b8 } .internal { stroke-dasharray: 5 4 }
  .store { fill: #fdf3d8; stroke: #b98a1d }
  .use { fill: none; stroke: #b98a1d; stroke-width: 1.2; stroke-dasharray: 3 3 }
  .edge { fill: none; stroke: #66727f; stroke-width: 1.4 } .tip { fill: #66727f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0 } .back { fill: #12161b } .box { fill: #1a2027; stroke: #323c47 }
    .head { fill: #98a5b3; stroke: #1a2027 } .small { fill: #98a5b3 } .processor, .source, .sink { fill: #232b34 }
    .processor { stroke: #5b6875 } .source { stroke: #4fb286 } .sink { stroke: #e08a5b }
    .topic { fill: #1b2f45; stroke: #5b9bdb } .store { fill: #3a3018; stroke: #d4a93a } .use { stroke: #d4a93a }
    .edge { stroke: #98a5b3 } .tip { fill: #98a5b3 }
  }
"""


def _labels(of: DrawnNode) -> tuple[str, str]:
    """Return a node's two lines of text: operator and generated name, or the user's name and the kind of node."""
    if of.name.startswith("KTABLE-SOURCE"):
        return "table", of.name
    if found := _GENERATED.fullmatch(of.name):
        return _ROLES.get(found["role"], found["role"].lower().replace("-", " ")), of.name
    return of.name, of.kind


def escaped(text: str) -> str:
    """Return a user's text as XML, with U+FFFD for characters that XML forbids or that turn the direction of text."""
    return escape(_UNSAFE.sub("\ufffd", text))


def width(kind: str, name: str) -> float:
    """Return the width of a topic or of a store."""
    return len(name) * 8.2 + 36 if kind == "topic" else max(len(name) * _SMALL, 40) + 20


def node_width(of: DrawnNode) -> float:
    """Return the width of a node."""
    name, small = _labels(of)
    return max(len(name) * _NAME, len(small) * _SMALL, 70) + 24


def node(of: DrawnNode, x: float, y: float) -> str:
    """Return a node as a box with rounded corners."""
    name, small = _labels(of)
    half = node_width(of) / 2
    shape = rectangle(of.kind, (x - half, y - NODE_HEIGHT / 2), (x + half, y + NODE_HEIGHT / 2), radius=6)
    return _titled(of.name, shape, text("name", x, y - 3, name), text("small", x, y + 11, small))


def topic(name: str, x: float, y: float, *, internal: bool) -> str:
    """Return a topic as a box with round ends, dashed if it is internal."""
    half, kind = width("topic", name) / 2, "topic internal" if internal else "topic"
    end = TOPIC_HEIGHT / 2
    shape = rectangle(kind, (x - half, y - end), (x + half, y + end), radius=end)
    return _titled(f"topic {name}", shape, text("name", x, y + 4, name))


def store(name: str, x: float, y: float) -> str:
    """Return a store as a cylinder."""
    half, top, bottom = width("store", name) / 2, y - NODE_HEIGHT / 2 + 5, y + NODE_HEIGHT / 2 - 5
    left, right, arc = f"{x - half:.1f}", f"{x + half:.1f}", f"A{half:.1f},5 0 0"
    path = (
        f"M{left},{top} {arc} 1 {right},{top} V{bottom} {arc} 1 {left},{bottom} Z M{left},{top} {arc} 0 {right},{top}"
    )
    return _titled(f"store {name}", f'<path class="store" d="{path}"/>', text("small", x, y + 6, name))


def rectangle(kind: str, upper_left: Point, lower_right: Point, *, radius: float) -> str:
    """Return a rectangle with rounded corners."""
    x, y = upper_left
    width, height = lower_right[0] - x, lower_right[1] - y
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.0f}"'
    return f'<rect class="{kind}" {place}/>'


def text(kind: str, x: float, y: float, content: str) -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escaped(content)}</text>'


def figures(x: float, y: float, **about: str) -> str:
    """Return an empty text of two lines, which a page fills with live figures.

    Args:
        x: the middle.
        y: the middle.
        about: attributes that say whose figures they are.
    """
    said = "".join(f' data-{name}="{escaped(value)}"' for name, value in about.items())
    lines = "".join(
        f'<tspan class="{name}" x="{x:.1f}" y="{y + down:.1f}"/>' for name, down in (("rate", -2), ("lag", 11))
    )
    return f'<text class="live"{said}>{lines}</text>'


def arrow(points: Sequence[Point], *, upwards: bool = False) -> str:
    """Return an arrow that leaves downwards, or upwards, passes points vertically and arrives from above."""
    passes = [1 if after[1] >= before[1] else -1 for before, after in zip(points, points[2:], strict=False)]
    ways = [-1 if upwards else 1, *passes, 1]
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for ((x, y), (to_x, to_y)), (leaves, arrives) in zip(
        itertools.pairwise(points), itertools.pairwise(ways), strict=True
    ):
        out, into = (way * (abs(to_y - y) / 2 if (to_y - y) * way > 0 else _TURN) for way in (leaves, arrives))
        path += f" C{x:.1f},{y + out:.1f} {to_x:.1f},{to_y - into:.1f} {to_x:.1f},{to_y:.1f}"
    return f'<path class="edge" d="{path}" marker-end="url(#tip)"/>'


def _titled(title: str, *shapes: str) -> str:
    """Return shapes with the text that appears under the mouse pointer."""
    return f"<g><title>{escaped(title)}</title>{''.join(shapes)}</g>"
