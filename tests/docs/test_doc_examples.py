"""The examples of other pages than the guides run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

import millpond as mp
from millpond.queries import Client, Row, Store, VersionRow, WindowRow
from millpond.testing import TopologyTestDriver

from .examples import run_examples
from .pages import PAGES, ROOT, blocks

RUN_BY = {
    "docs/batches.md": "tests/docs/test_doc_examples.py",
    "docs/embedding.md": "tests/docs/test_doc_embedding.py",
    "docs/getting-started.md": "tests/demo/test_readme.py",
    "docs/kafka-streams-names.md": "tests/docs/test_doc_examples.py",
    "docs/migrating/from-faust.md": "tests/docs/test_doc_guides.py",
    "docs/migrating/from-kafka-streams.md": "tests/docs/test_doc_migrating.py",
    "docs/migrating/from-quixstreams.md": "tests/packaging/test_migrating.py",
    "docs/processors.md": "tests/docs/test_doc_processors.py",
    "docs/queries.md": "tests/docs/test_doc_examples.py",
    "docs/small-applications.md": "tests/docs/test_doc_examples.py",
    "docs/testing-applications.md": "tests/docs/test_doc_examples.py",
    "docs/topics.md": "tests/docs/test_doc_topics.py",
}
"""What runs the Python blocks of a page; those of guides: `test_doc_guides.py`."""

NOT_RUN = {
    "docs/catalog.md": "reads tables in S3 with Spark, DuckDB and pyiceberg, which tests of snapshots do on a directory"
}
"""Pages whose Python blocks are only compiled, and the reason."""


@pytest.mark.parametrize("page", PAGES)
def test_a_test_runs_the_python_of_each_page(page: str) -> None:
    """A new page with an example needs a test that runs it, or a reason why none can."""
    python = [block for block in blocks(page) if block.language == "python"]
    if not python or page.startswith("docs/guides/"):
        return
    if page in NOT_RUN:
        for block in python:
            compile(block.text, page, "exec")
        return
    assert page in RUN_BY, f"nothing runs {page}:{python[0].line}"
    assert Path(page).name in (ROOT / RUN_BY[page]).read_text(encoding="utf-8")


def test_the_example_of_names_runs() -> None:
    """The topology has the names that the page gives to its parts."""
    names, _ = run_examples("docs/kafka-streams-names.md", {})
    described = str(names["builder"].build().describe())
    assert "by-customer-repartition" in described
    assert "counts" in described


def test_the_examples_of_queries_fit_the_client() -> None:
    """Methods and arguments are those of the client; `tests/queries` has its answers from workers."""
    moment, window = datetime(2013, 1, 1, tzinfo=UTC), mp.Window(0, 60_000)
    store = mock.create_autospec(Store, instance=True)
    store.range.return_value = [Row("A", 1)]
    store.fetch.return_value = store.sessions.return_value = [WindowRow("JFK", window, 1)]
    store.versions.return_value = [VersionRow("AAPL", 1, 0, None)]
    client = mock.create_autospec(Client, instance=True)
    client.__enter__.return_value = client
    client.store.return_value = store
    made = mock.create_autospec(Client, return_value=client)
    given = {"mp": mp, "Path": Path, "Delay": dict, "start": moment, "end": moment}
    with mock.patch("millpond.queries.Client", made):
        _, printed = run_examples("docs/queries.md", {}, given)
    assert printed.splitlines()[0] == "A 1"
    assert made.call_count == 3


def test_the_examples_of_batches_run():
    """Scores and prices come out with the keys of their records."""
    names, _ = run_examples("docs/batches.md", {})
    with TopologyTestDriver(names["builder"].build()) as driver:
        driver.create_input_topic("texts", key=mp.String, value=mp.String).pipe_input("a", "x" * 50)
        scores = driver.create_output_topic("scores", key=mp.String, value=mp.Double)
        assert scores.read_key_value() == ("a", 0.5)
        driver.create_input_topic("orders", key=mp.String, value=mp.String).pipe_input("b", "tea")
        prices = driver.create_output_topic("prices", key=mp.String, value=mp.String)
        assert prices.read_key_values_to_list() == [("b", "tea:"), ("b", "3.00")]


def test_the_examples_of_small_applications_run():
    """The order is priced, counted and shown."""
    _, printed = run_examples("docs/small-applications.md", {})
    assert printed == "a has 1 orders\n"


def test_the_tests_of_testing_applications_pass() -> None:
    """Each function of the page that pytest would run is run."""
    names, _ = run_examples("docs/testing-applications.md", {})
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()
