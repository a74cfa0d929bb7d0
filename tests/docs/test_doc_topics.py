"""The commands of docs/topics.md do what the page shows, on a real broker."""

from __future__ import annotations

import io
import re
import shlex
import struct
import sys
from pathlib import Path

import pytest

from millpond.cli import main
from tests.support import kafka
from tests.support.broker import Broker

from .pages import blocks

PAGE = "docs/topics.md"
_TOPICS = ("page-views", "refunds", "page-counts", "pages-views-per-page-changelog")


def _say(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line of the page; return its output, or its error."""
    text, _, command = line.rpartition("' | ")
    monkeypatch.setattr(sys, "stdin", _Input(text.removeprefix("echo '") + "\n"))
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
        sys.exit(0)
    out, err = capsys.readouterr()
    failed = "".join(re.findall(r"^millpond: .*\n", err, re.MULTILINE))
    assert bool(ended.value.code) == bool(failed), err
    return failed or str(out)


class _Input(io.TextIOWrapper):
    """Standard input with a text."""

    def __init__(self, text: str) -> None:
        super().__init__(io.BytesIO(text.encode()))


@pytest.fixture
def topics(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The results of the application, in the place where the page's commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("MILLPOND_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # no session of this machine is found
    monkeypatch.delenv("COLUMNS", raising=False)  # the output is for a program
    program = next(each.text for each in blocks(PAGE) if each.text.startswith("# pages.py\n"))
    (tmp_path / "pages.py").write_text(program)
    for topic, suffix in (("page-counts", b""), ("pages-views-per-page-changelog", bytes(4))):
        kafka.create_topic(broker.bootstrap_servers, topic)
        counts = [
            (b"/" + struct.pack(">q", start) + suffix, struct.pack(">q", count), at)
            for start, count, at in ((1769860800000, 2, 1769860815000), (1769860860000, 1, 1769860870000))
        ]
        kafka.produce(broker.bootstrap_servers, topic, counts)
    return broker.bootstrap_servers


def test_the_commands_of_the_page_show_what_it_has(
    topics: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command of a block that is followed by its output shows that output, and the others succeed."""
    said: list[str] = []
    try:
        for block in blocks(PAGE):
            if block.language == "sh":
                said = [_say(line, monkeypatch, capsys) for line in block.text.splitlines()]
            elif block.language in ("json", "text"):
                assert set(said) - {""} == {block.text}
        assert re.search(r"page-counts +1 +2 ", said[0])
    finally:
        kafka.delete_topics(topics, _TOPICS)
