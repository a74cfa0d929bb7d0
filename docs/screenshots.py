"""Take the pictures of the console for docs/console.md: `make screenshots`.

`dev-*.png` is a real session of the flights demo under load, in which a worker is killed. `kubernetes-*.png` is the
page with the documents of tests/console, as an operator serves them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from examples.flights.stage import data, player
from examples.flights.stage.session import DevSession
from examples.flights.stage.workers import Workers
from millpond.broker import EmbeddedBroker
from millpond.cli.dev.remote import Remote
from tests.console.pond import Source, overview, serving
from tests.support.chromium import Page, chromium

_TO = Path(__file__).parent / "console"
_DAYS, _SECONDS, _WORKERS = 240, 120, 3
_TIMEOUT_S = 120.0
_LOOKS = [(1300, "light"), (1300, "dark"), (700, "light"), (700, "dark")]
_DRAWN = "[...document.querySelectorAll('#topology text[data-topic] .rate')].some((each) => each.textContent)"


def main() -> None:
    """Take all pictures."""
    _TO.mkdir(exist_ok=True)
    with chromium() as browser:
        page = browser.new_page()
        with serving(Source(overview(), overview(name="lake"))) as server:
            _shoot(page, f"{server.url}#/flights/pond", "kubernetes", _DRAWN)
            page.look(1300, 420)
            page.open(server.url)
            page.wait_text("flights/pond")
            page.screenshot(_TO / "kubernetes-list.png", whole=False)
            page.open("about:blank")
        with _session() as url:
            address = url.replace("/console/", "/api/applications/-/flights-demo")
            _await(lambda: _ask(address)["summary"].get("records_per_second", 0) > 100)
            _shoot(page, f"{url}#/-/flights-demo", "dev", _DRAWN)
            page.look(1300)
            page.open(f"{url}#/-/flights-demo")
            page.wait(_DRAWN)
            Remote.find().command("kill", worker="w1", restart_after_s=20)
            page.wait_text("w1's tasks are processed again", "gone")
            page.wait("!document.querySelector('[role=gridcell].active:not(.running)')")
            page.screenshot(_TO / "dev-killed.png")
            errors = [*page.errors]  # before the session ends: then the page finds no server
            page.open("about:blank")
        if errors:
            sys.exit(f"The page had errors: {errors}")


def _shoot(page: Page, url: str, name: str, ready: str) -> None:
    for width, scheme in _LOOKS:
        page.look(width, scheme=scheme)
        page.open("about:blank")
        page.open(url)
        page.wait(ready)
        page.run("document.querySelector('#tasks [role=gridcell]')?.focus()")
        page.run("document.activeElement.blur()")
        page.screenshot(_TO / f"{name}-{width}-{scheme}.png")


@contextlib.contextmanager
def _session() -> Iterator[str]:
    """Run the flights demo under load; yield the URL of its console."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-", dir=_memory())))
        servers = stack.enter_context(EmbeddedBroker(directory / "kafka")).bootstrap_servers
        player.create_topics(servers)
        session = DevSession(servers, directory, _WORKERS)
        stack.callback(session.end)
        player.play_tables(servers)
        flights = player.Player(servers, data.year(_DAYS), _SECONDS)
        stack.callback(flights.stop)
        Workers(session).await_all()
        flights.start()
        status = session.status()
        assert status is not None
        yield status.console


def _memory() -> str | None:
    """Return a file system in memory, if there is one: the pictures must not show how full this machine's disk is."""
    return next((each for each in ("/dev/shm",) if os.access(each, os.W_OK)), None)  # noqa: S108 - a random folder in it


def _ask(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the session's own URL
        found: dict[str, Any] = json.load(answer)
        return found


def _await(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("The session does not do in time what the pictures show.")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
