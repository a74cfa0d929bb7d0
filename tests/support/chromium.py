"""Headless Chromium for tests of pages, over its debugging pipe: what a person sees, clicks and types."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ("Browser", "ChromiumMissing", "Page", "chromium", "find")

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe", "--no-proxy-server",
)  # fmt: skip
_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 100.0
"""On a cold machine that builds images, Chromium's first start has taken more than 40 s."""
_KEYS = {
    "Tab": 9, "Enter": 13, "Home": 36, "End": 35,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


class ChromiumMissing(Exception):
    """No Chromium is installed here."""


class Page:
    """A page in a browser.

    Attributes:
        errors: what the page's console said that is not expected of a page without faults.
        expected: texts of errors that a test causes, which are no faults, however often and late they are reported.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        self.expected: list[str] = []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the Chrome DevTools Protocol; return its result."""
        return self._browser.send(method, parameters, self._session)

    def open(self, url: str) -> None:
        """Go to a URL."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Set the window's size in px, and the person's choice of light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"]["exception"].get("description", "the expression failed"))
        return found["result"].get("value")

    def wait(self, expression: str, timeout_s: float = _TIMEOUT_S) -> Any:
        """Return the value of a JavaScript expression as soon as it is true.

        Raises:
            AssertionError: it did not become true in time.
        """
        deadline = time.monotonic() + timeout_s
        while not (value := self.run(expression)):
            if time.monotonic() > deadline:
                shown = self.run("document.body.innerText")
                raise AssertionError(f"not true in {timeout_s:.0f} s: {expression}\nThe page shows:\n{shown}")
            time.sleep(0.03)
        return value

    @property
    def text(self) -> str:
        """The text that a person sees."""
        return str(self.run("document.body.innerText"))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something outside of the page is true; raises like `wait`."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "not true in time"
            time.sleep(0.01)

    def wait_text(self, *texts: str) -> None:
        """Wait until a person sees all of these texts."""
        for each in texts:
            self.wait(f"document.body.innerText.includes({json.dumps(each)})")

    def press(self, key: str) -> None:
        """Press a key."""
        event: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        if key == "Enter":
            event["text"] = "\r"
        self.send("Input.dispatchKeyEvent", type="keyDown", **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the window, or of the whole page."""
        clip = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Close the page."""
        self._browser.pages.pop(self._session, None)
        self.send("Page.close")

    def note(self, method: str, parameters: Any) -> None:
        """Remember an error that the browser reports."""
        error: str | None = None
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            error = details.get("exception", {}).get("description") or details["text"]
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            error = " ".join(str(each.get("value", each)) for each in parameters["args"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            entry = parameters["entry"]
            error = f"{entry['source']}: {entry['text']} {entry.get('url', '')}"
        if error is not None and not any(each in error for each in self.expected):
            self.errors.append(error)


class Browser:
    """A running browser."""

    def __init__(self, process: subprocess.Popen[bytes], writer: int, reader: int) -> None:
        self._process = process
        self._writer = writer
        self._reader = reader
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = defaultdict(dict)
        self._arrived = threading.Condition()
        self._gone = False
        self.pages: dict[str, Page] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, method: str, parameters: dict[str, Any], session: str = "", timeout_s: float = _TIMEOUT_S) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        with contextlib.suppress(BrokenPipeError):  # the browser is gone, and the wait below says so
            os.write(self._writer, json.dumps(message).encode() + b"\0")
        with self._arrived:
            came = self._arrived.wait_for(lambda: self._gone or number in self._answers, timeout_s)
            if not came or number not in self._answers:
                why = f"did not answer {method} in {timeout_s:.0f} s" if not self._gone else f"ended before {method}"
                raise AssertionError(f"Chromium {why}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def new_page(self) -> Page:
        context = self.send("Target.createBrowserContext", {})["browserContextId"]
        target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session)

    def _listen(self) -> None:
        left = b""
        while chunk := os.read(self._reader, 1 << 16):
            *messages, left = (left + chunk).split(b"\0")
            for raw in messages:
                message = json.loads(raw)
                if "id" in message:
                    with self._arrived:
                        self._answers[message["id"]] = message
                        self._arrived.notify_all()
                elif (page := self.pages.get(message.get("sessionId", ""))) is not None:
                    page.note(message["method"], message.get("params", {}))
        with self._arrived:
            self._gone = True
            self._arrived.notify_all()


def find() -> str:
    """Return the path of the installed browser.

    Raises:
        ChromiumMissing: none is installed.
    """
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise ChromiumMissing("No Chromium is installed: install Debian's package chromium to test the console's page.")
    return program


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser while the block runs, which begins when it answers; `new_page()` opens a page without history.

    Raises:
        AssertionError: it ends at its start, or does not answer.
        ChromiumMissing: none is installed.
    """
    program = find()
    with tempfile.TemporaryDirectory(prefix="millpond-chromium-", ignore_cleanup_errors=True) as home:
        inputs, outputs = os.pipe(), os.pipe()
        reads, writes = fcntl.fcntl(inputs[0], fcntl.F_DUPFD, 100), fcntl.fcntl(outputs[1], fcntl.F_DUPFD, 100)

        def connect() -> None:
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={home}", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": home},
        )
        for each in (inputs[0], outputs[1], reads, writes):
            os.close(each)
        try:
            browser = Browser(process, inputs[1], outputs[0])
            browser.send("Browser.getVersion", {}, timeout_s=_START_TIMEOUT_S)
            yield browser
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the browser and what it started
            process.wait()
            os.close(inputs[1])
