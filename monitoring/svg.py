"""Charts in SVG as Grafana draws them: lines, stacks, states over time, one number."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ("Series", "lines", "shown", "stat", "timeline")

_PALETTE = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#fade2a", "#96d98d", "#ffb357", "#ff7383", "#ca95e5",
)  # fmt: skip
_COLORS = {
    "green": "#73bf69",
    "yellow": "#f2cc0c",
    "red": "#f2495c",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "dark-red": "#c4162a",
}
_AXIS, _TOP, _TICKS, _LEGEND_LINE = 60, 10, 4, 16
#: The width of a time on the axis with its space, in pixels.
_TIME_WIDTH = 64
_Span = tuple[float, float]


class Series(NamedTuple):
    """One series of a query."""

    name: str
    values: list[tuple[float, float]]
    """Times in seconds since 1970, and values."""
    step: float
    """The time between two values, in seconds: a larger one is a gap."""


def shown(value: float, unit: str) -> str:
    """Return a value as Grafana shows it with a unit."""
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return _seconds(value)
    if unit == "bytes":
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), " ")
    suffix = {"cps": " c/s", "ops": " ops/s", "reqps": " req/s"}.get(unit, "")
    return _scaled(value, 1000, ("", "K", "Mil", "Bil"), " " if abs(value) >= 1000 else "") + suffix


def _scaled(value: float, base: int, units: Sequence[str], gap: str) -> str:
    number = 0
    while abs(value) >= base and number < len(units) - 1:
        value, number = value / base, number + 1
    return f"{value:.3g}{gap if units[number] else ''}{units[number]}"


def _seconds(value: float) -> str:
    size = abs(value)
    if size and size < 1:
        return f"{value * 1000:.3g} ms"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if size >= 1.5 * length:
            return f"{value / length:.3g} {unit}"
    return f"{value:.3g} s"


def color_of(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """Return the colour of a value by the thresholds of a panel."""
    found = "green"
    for step in steps:
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return _COLORS.get(found, found)


def stat(values: Sequence[tuple[float, float]], defaults: Mapping[str, Any], width: int, height: int) -> str:
    """Return the last value, above a small line of all values."""
    value = values[-1][1]
    color = color_of(value, defaults["thresholds"]["steps"])
    text = shown(value, defaults.get("unit", "short"))
    size = min(34, int(height * 0.45), int(width / max(3, len(text)) * 1.5))
    numbers = [each for _, each in values if not math.isnan(each)] or [0.0]
    low, high = min(numbers), max(numbers)
    spread = (high - low) or 1
    count = max(1, len(numbers) - 1)
    points = " ".join(
        f"{number / count * width:.1f},{height - 2 - (each - low) / spread * height * 0.35:.1f}"
        for number, each in enumerate(numbers)
    )
    area = f'<polyline points="0,{height} {points} {width},{height}" fill="{color}" fill-opacity="0.15" stroke="none"/>'
    line = f'<polyline points="{points}" fill="none" stroke="{color}" stroke-opacity="0.5"/>'
    label = f'<text x="{width / 2}" y="{height * 0.55}" text-anchor="middle" font-size="{size}" font-weight="600" fill="{color}">{html.escape(text)}</text>'
    return f'<svg width="{width}" height="{height}">{area}{line}{label}</svg>'


def lines(series: Sequence[Series], defaults: Mapping[str, Any], span: _Span, width: int, height: int) -> str:
    """Return lines over time, with axes, thresholds and a legend of the last and the largest values."""
    custom, unit = defaults.get("custom", {}), defaults.get("unit", "short")
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    rows = min(len(series), max(2, int(height * 0.3 / _LEGEND_LINE)))
    plot = height - rows * _LEGEND_LINE - 42
    drawn = _stacked(series) if stacked else [each.values for each in series]
    numbers = [value for values in drawn for _, value in values if math.isfinite(value)] or [0.0]
    low, high = defaults.get("min", min(numbers)), max(numbers)
    high = min(high, defaults["max"]) if "max" in defaults else high
    ticks = _ticks(low, high if high > low else low + 1, unit)
    low, high = ticks[0], ticks[-1]

    def x(at: float) -> float:
        return _AXIS + (at - span[0]) / (span[1] - span[0]) * (width - _AXIS - 4)

    def y(value: float) -> float:
        return _TOP + plot - (min(value, high) - low) / (high - low) * plot

    parts = [_frame(ticks, unit, span, x, y, width, plot)]
    if custom.get("thresholdsStyle", {}).get("mode", "off") != "off":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None and low <= step["value"] <= high:
                color = _COLORS.get(step["color"], step["color"])
                parts.append(
                    f'<line x1="{_AXIS}" x2="{width}" y1="{y(step["value"]):.1f}" y2="{y(step["value"]):.1f}" stroke="{color}" stroke-dasharray="6 4"/>'
                )
    for number in reversed(range(len(series))):
        color = _PALETTE[number % len(_PALETTE)]
        for piece in _pieces(drawn[number], series[number].step):
            points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in piece)
            below = dict(drawn[number - 1]) if stacked and number else {}
            base = " ".join(f"{x(at):.1f},{y(below.get(at, low)):.1f}" for at, _ in reversed(piece))
            opacity = custom.get("fillOpacity", 0) / 100
            parts.append(f'<polygon points="{points} {base}" fill="{color}" fill-opacity="{opacity}"/>')
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.3"/>')
    legend = "".join(
        f'<span><i style="background:{_PALETTE[number % len(_PALETTE)]}"></i>{html.escape(each.name)}</span>'
        f"<span>{shown(each.values[-1][1], unit)}</span><span>max {shown(max(value for _, value in each.values), unit)}</span>"
        for number, each in list(enumerate(series))[:rows]
    )
    return f'<svg width="{width}" height="{plot + _TOP + 20}">{"".join(parts)}</svg><div class="legend">{legend}</div>'


def timeline(series: Sequence[Series], defaults: Mapping[str, Any], span: _Span, width: int, height: int) -> str:
    """Return a bar of coloured states for each series, with a legend of the states that occur."""
    texts = {value: result for mapping in defaults.get("mappings", ()) for value, result in mapping["options"].items()}
    names = sorted({each.name for each in series})
    label = min(170, 12 + max(len(each) for each in names) * 7)
    line = min(44, (height - 44) / len(names))
    parts, seen = [], {}
    for each in series:
        top = names.index(each.name) * line
        for at, value in each.values:
            result = texts.get(f"{value:g}", {"text": f"{value:g}", "color": "#444"})
            seen[result["text"]] = color = _COLORS.get(result["color"], result["color"])
            left = label + (at - span[0]) / (span[1] - span[0]) * (width - label)
            size = each.step / (span[1] - span[0]) * (width - label) + 0.6
            parts.append(
                f'<rect x="{left:.1f}" y="{top + 2:.1f}" width="{size:.1f}" height="{line - 4:.1f}" fill="{color}" shape-rendering="crispEdges"/>'
            )
    for number, name in enumerate(names):
        parts.append(
            f'<text x="0" y="{number * line + line / 2 + 4:.1f}" font-size="11" fill="#ccccdc">{html.escape(name)}</text>'
        )
    legend = "".join(
        f'<span><i style="background:{color};height:10px"></i>{html.escape(text)}</span>'
        for text, color in seen.items()
    )
    body = f'<svg width="{width}" height="{len(names) * line + 4}">{"".join(parts)}</svg>'
    return f'{body}<div class="legend" style="display:flex">{legend}</div>'


def _frame(  # noqa: PLR0913 - the scales of a chart
    ticks: Sequence[float], unit: str, span: _Span, x: Any, y: Any, width: int, plot: int
) -> str:
    parts = []
    for tick in ticks:
        parts.append(f'<line x1="{_AXIS}" x2="{width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#2a2d33"/>')
        parts.append(
            f'<text x="{_AXIS - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" font-size="10" fill="#8e8e9c">{shown(tick, unit)}</text>'
        )
    times = max(1, min(_TICKS + 1, (width - _AXIS) // _TIME_WIDTH))
    for number in range(times):
        at = span[0] + (span[1] - span[0]) * (number + 0.5) / times
        text = time.strftime("%H:%M:%S", time.gmtime(at))
        parts.append(
            f'<text x="{x(at):.1f}" y="{plot + _TOP + 16}" text-anchor="middle" font-size="10" fill="#8e8e9c">{text}</text>'
        )
    return "".join(parts)


def _ticks(low: float, high: float, unit: str) -> list[float]:
    raw = (high - low) / _TICKS
    if unit == "bytes":
        size = float(2 ** math.ceil(math.log2(max(raw, 1))))
        return [number * size for number in range(math.floor(low / size), math.ceil(high / size) + 1)]
    magnitude = 10 ** math.floor(math.log10(raw))
    size = next(each * magnitude for each in (1, 2, 2.5, 5, 10) if each * magnitude >= raw)
    first = math.floor(low / size)
    return [number * size for number in range(first, math.ceil(high / size - 1e-9) + 1)]


def _pieces(values: Sequence[tuple[float, float]], step: float) -> list[list[tuple[float, float]]]:
    """Return a series without its gaps."""
    found: list[list[tuple[float, float]]] = []
    before = -math.inf
    for at, value in values:
        if not math.isfinite(value):
            continue
        if at - before > 1.5 * step:
            found.append([])
        found[-1].append((at, value))
        before = at
    return found


def _stacked(series: Sequence[Series]) -> list[list[tuple[float, float]]]:
    total: dict[float, float] = {}
    found = []
    for each in series:
        for at, value in each.values:
            total[at] = total.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
        found.append([(at, total[at]) for at, _ in each.values])
    return found
