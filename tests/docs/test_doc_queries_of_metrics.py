"""Queries of metrics in guides select metrics that workers export."""

from __future__ import annotations

from monitoring import inventory
from monitoring.queries import selectors

from .pages import PAGES, blocks


def test_queries_of_guides_select_metrics_that_exist() -> None:
    """A metric that is renamed is renamed in the guides, too."""
    known = inventory.worker_metrics().keys()
    queries = [block for page in PAGES for block in blocks(page) if block.language == "promql"]
    assert queries
    unknown = {(block.page, name) for block in queries for name, _ in selectors(block.text) if name not in known}
    assert unknown == set()
