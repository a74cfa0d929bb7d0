"""The examples of docs/guides run: Python blocks one after the other, settings through `Config`."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import tomllib

import pytest
import yaml
from opentelemetry import trace

from millpond.json_logs import JsonFormatter
from millpond.runtime.config.model import Config
from millpond.runtime.http import metrics
from monitoring import inventory
from monitoring.queries import selectors

from .examples import run_examples
from .pages import PAGES, blocks

GUIDES = tuple(page for page in PAGES if page.startswith("docs/guides/"))
LANGUAGES = {
    "python": "run",
    "toml": "read by Config",
    "yaml": "probes, whose paths a worker serves",
    "sh": "test_doc_commands.py",
    "promql": "queries of metrics that workers export",
    "json": "lines of logs",
    "text": "what a command says: tests/cli/check",
}
"""Languages of blocks, and what tests them."""


@pytest.mark.parametrize("page", [*GUIDES, "docs/migrating/from-faust.md"])
def test_the_examples_of_a_guide_run(page: str) -> None:
    """A guide states its results with `assert`."""
    python = [block.text for block in blocks(page) if block.language == "python"]
    assert not python or any("assert " in text for text in python)
    run_examples(page, {})


@pytest.mark.parametrize("page", GUIDES)
def test_the_settings_of_a_guide_are_valid(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"nothing tests the block {page}:{block.line}"
        if block.language == "toml":
            Config.of(_flat(tomllib.loads(block.text)), required=())
        if block.language == "yaml":
            [container] = yaml.safe_load(block.text)["spec"]["template"]["spec"]["containers"]
            for probe in ("livenessProbe", "readinessProbe"):
                assert f'"{container[probe]["httpGet"]["path"]}"' in inspect.getsource(metrics)


def _flat(table: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Return the settings of a file by their whole keys."""
    found: dict[str, object] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


@pytest.mark.parametrize("page", GUIDES)
def test_lines_of_json_are_those_of_logs(page: str) -> None:
    """With the fields that a worker writes for an exception, or for a record with a trace, in their order."""
    error = ValueError("too long")
    failed = logging.LogRecord("shop", logging.ERROR, "", 0, "failed", None, (ValueError, error, None))
    traced = logging.LogRecord("shop", logging.WARNING, "", 0, "no such customer", None, None)
    format_line = JsonFormatter(application_id="orders", worker="w0").format
    span = trace.NonRecordingSpan(trace.SpanContext(0x4BF92F, 0x00F067, is_remote=True))
    for block in blocks(page):
        if block.language == "json":
            shown = json.loads(block.text)
            with trace.use_span(span) if "trace_id" in shown else contextlib.nullcontext():
                line = json.loads(format_line(traced if "trace_id" in shown else failed))
            assert list(shown) == list(line)
            assert [len(shown.get(each, "")) for each in ("trace_id", "span_id")] == [
                len(line.get(each, "")) for each in ("trace_id", "span_id")
            ]


def test_queries_of_pages_select_metrics_that_exist() -> None:
    """A metric that is renamed is renamed in the pages, too."""
    known = inventory.worker_metrics().keys() | inventory.operator_metrics().keys()
    queries = [block for page in PAGES for block in blocks(page) if block.language == "promql"]
    assert queries
    unknown = {
        (block.page, name)
        for block in queries
        for name, _ in selectors(block.text)
        if name.removesuffix("_bucket") not in known
    }
    assert unknown == set()
