"""Panels and dashboards as the four dashboards have them: one look, a description on each panel, links to each other.

Variables in queries: `$namespace` and `$application` (and `$worker`) are regular expressions, and All is `.*`, which
also matches the missing label of an application outside Kubernetes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitoring.rules.model import RUNBOOKS

__all__ = (
    "APP",
    "BLUE",
    "GREEN",
    "RED",
    "STATE_MAPPINGS",
    "WORKER",
    "YELLOW",
    "Board",
    "Query",
    "Row",
    "Stat",
    "StateTimeline",
    "Table",
    "TimeSeries",
    "states_query",
)

APP: Final = 'namespace=~"$namespace",application_id=~"$application"'
"""The selector of a metric of workers or StreamApps."""
WORKER: Final = f'{APP},worker=~"$worker"'
"""The selector of a metric of workers, on dashboards with the variable."""

_SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_DOCS = RUNBOOKS.removesuffix("/runbooks")
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
_Steps = Sequence[tuple[float | None, str]]
#: States of a worker with their colours; the number of a state is its place here, from 1.
_STATES = (
    ("created", BLUE), ("starting", BLUE), ("restoring", YELLOW), ("running", GREEN), ("pending_shutdown", "purple"),
    ("not_running", "dark-red"), ("error", RED), ("pending_error", RED),
)  # fmt: skip
STATE_MAPPINGS: Final = tuple((str(number), state, color) for number, (state, color) in enumerate(_STATES, 1))
"""The texts and colours of the values of `states_query`."""


def states_query(selector: str) -> str:
    """Return the query of the state of each worker, as a number."""
    return " or ".join(
        f'(millpond_worker_state{{{selector},state="{state}"}} == 1) * {number}'
        for number, (state, _) in enumerate(_STATES, 1)
    )


@dataclass(frozen=True)
class Query:
    """A query of a panel."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class _Panel:
    title: str
    text: str
    """The description."""
    queries: Sequence[Query]
    width: int = 8
    """Of 24 columns."""
    height: int = 8
    unit: str = "short"
    steps: _Steps = ((None, GREEN),)
    """Thresholds: the value from which a colour is used, the first one None."""
    alert: str = ""
    """The alert about the same thing: the panel links to its runbook."""

    def _finish(self, builder: Any) -> Any:
        thresholds = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
        builder = (
            builder.title(self.title)
            .description(self.text)
            .datasource(_SOURCE)
            .unit(self.unit)
            .span(self.width)
            .height(self.height)
            .thresholds(thresholds.steps([model.Threshold(value=value, color=color) for value, color in self.steps]))
        )
        if self.alert:
            link = dashboard.DashboardLink(f"Runbook {self.alert}").type(model.DashboardLinkType.LINK)
            builder = builder.links([link.url(f"{RUNBOOKS}/{self.alert}.html").target_blank(True)])  # noqa: FBT003 - Grafana's API
        for number, query in enumerate(self.queries):
            builder = builder.with_target(self._target(query, chr(ord("A") + number)))
        return builder

    def _target(self, query: Query, ref: str) -> prometheus.Dataquery:
        target = prometheus.Dataquery().expr(query.expr).ref_id(ref).datasource(_SOURCE).range()
        return target.legend_format(query.legend) if query.legend else target

    def build(self) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TimeSeries(_Panel):
    """Lines over time."""

    stacked: bool = False
    minimum: float | None = 0
    maximum: float | None = None

    def build(self) -> Any:
        """Return the builder of the panel."""
        legend = (
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.TABLE)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)  # noqa: FBT003 - Grafana's API
            .calcs(["lastNotNull", "max"])
        )
        tooltip = common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING)
        panel = (
            timeseries.Panel()
            .legend(legend)
            .tooltip(tooltip)
            .line_width(1)
            .fill_opacity(30 if self.stacked else 8)
            .show_points(options.VisibilityMode.NEVER)
        )
        if self.stacked:
            panel = panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
        if self.minimum is not None:
            panel = panel.min(self.minimum)
        if self.maximum is not None:
            panel = panel.max(self.maximum)
        if len(self.steps) > 1:
            style = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
            panel = panel.thresholds_style(style)
        return self._finish(panel)


@dataclass(frozen=True, kw_only=True)
class Stat(_Panel):
    """One number, the last value."""

    width: int = 3
    height: int = 4
    mappings: Sequence[tuple[str, str, str]] = ()
    """A value, the text that is shown instead, and its colour."""
    no_value: str = ""
    """What is shown without a sample, where that is normal."""

    def build(self) -> Any:
        """Return the builder of the panel."""
        reduce = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)  # noqa: FBT003 - Grafana's API
        panel = (
            stat.Panel()
            .reduce_options(reduce)
            .color_mode(options.BigValueColorMode.VALUE)
            .graph_mode(options.BigValueGraphMode.AREA)
        )
        if self.mappings:
            panel = panel.mappings([_mapping(self.mappings)])
        if self.no_value:
            panel = panel.no_value(self.no_value)
        return self._finish(panel)


@dataclass(frozen=True, kw_only=True)
class StateTimeline(_Panel):
    """States over time, one row for each series; the value is shown as text."""

    mappings: Sequence[tuple[str, str, str]] = ()

    def build(self) -> Any:
        """Return the builder of the panel."""
        panel = statetimeline.Panel().show_value(options.VisibilityMode.NEVER).row_height(0.8).line_width(0)
        return self._finish(panel.mappings([_mapping(self.mappings)]))


@dataclass(frozen=True, kw_only=True)
class Table(_Panel):
    """One row for each series: its labels and its last value."""

    columns: Sequence[tuple[str, str]] = ()
    """The labels that are shown, with their titles; the value is `Value`."""

    def build(self) -> Any:
        """Return the builder of the panel."""
        panel = table.Panel().show_header(True).cell_height(options.TableCellHeight.SM)  # noqa: FBT003 - Grafana's API
        names = dict(self.columns)
        order = {name: number for number, name in enumerate(names)}
        return self._finish(panel).transformations(
            [
                model.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": [*names]}}),
                model.DataTransformerConfig(
                    id_val="organize", options={"indexByName": order, "renameByName": names, "excludeByName": {}}
                ),
            ]
        )

    def _target(self, query: Query, ref: str) -> prometheus.Dataquery:
        target = prometheus.Dataquery().expr(query.expr).ref_id(ref).datasource(_SOURCE)
        return target.instant().format(PromQueryFormat.TABLE)


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: Sequence[_Panel]


@dataclass(frozen=True)
class Board:
    """A dashboard."""

    uid: str
    title: str
    text: str
    """The description."""
    rows: Sequence[Row]
    variables: Sequence[tuple[str, str, str]]
    """Name, label and query of each variable after the data source."""
    tags: Sequence[str] = field(default=("millpond",))

    def build(self) -> model.Dashboard:
        """Return the dashboard."""
        board = (
            dashboard.Dashboard(self.title)
            .uid(self.uid)
            .description(self.text)
            .tags(list(self.tags))
            .refresh("30s")
            .time("now-1h", "now")
            .timezone("browser")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .links([_others(), _documentation()])
            .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        )
        for name, label, query in self.variables:
            board = board.with_variable(
                dashboard.QueryVariable(name)
                .label(label)
                .datasource(_SOURCE)
                .query(query)
                .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
                .sort(model.VariableSort.ALPHABETICAL_ASC)
                .multi(True)  # noqa: FBT003 - Grafana's API
                .include_all(True)  # noqa: FBT003 - Grafana's API
                .all_value(".*")
                .current(model.VariableOption(selected=True, text="All", value="$__all"))
            )
        numbers = itertools.count(1)
        for row in self.rows:
            board = board.with_row(dashboard.Row(row.title).id(next(numbers)))
            for panel in row.panels:
                board = board.with_panel(panel.build().id(next(numbers)))
        return board.build()


def _mapping(mappings: Sequence[tuple[str, str, str]]) -> model.ValueMap:
    found = {
        value: model.ValueMappingResult(text=text, color=color, index=number)
        for number, (value, text, color) in enumerate(mappings)
    }
    return model.ValueMap(options=found)


def _others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("millpond").type(model.DashboardLinkType.DASHBOARDS).tags(["millpond"])
    return link.include_vars(True).keep_time(True)  # noqa: FBT003 - Grafana's API


def _documentation() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("Runbooks").type(model.DashboardLinkType.LINK).icon("doc")
    return link.url(f"{_DOCS}/monitoring.html").target_blank(True)  # noqa: FBT003 - Grafana's API
