"""A browser that the tests of the page share, and the server that it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.console.pond import Server, Source, overview, serving
from tests.support.chromium import Browser, ChromiumMissing, Page, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium; without it, tests that need it are skipped."""
    try:
        with chromium() as running:
            yield running
    except ChromiumMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def source() -> Source:
    """What the server serves: one application in which a task moves."""
    return Source(overview())


@pytest.fixture
def server(source: Source) -> Iterator[Server]:
    """A server of the console."""
    with serving(source) as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of 1,300 px; at the end, its console must have no errors but those that the test has removed.

    The server outlives it: a page asks it again and again.
    """
    opened = browser.new_page()
    opened.look(1300)
    yield opened
    assert opened.errors == []
    opened.close()


@pytest.fixture
def application(page: Page, server: Server) -> Callable[..., Page]:
    """Opens the page of an application."""

    def open(name: str = "pond", width: int = 1300, scheme: str = "light") -> Page:
        page.look(width, scheme=scheme)
        page.open(f"{server.url}#/flights/{name}")
        page.wait("document.querySelector('#topology text.live .rate')?.textContent")
        return page

    return open
