"""The start of headless Chromium, which takes long on a machine that builds images."""

from __future__ import annotations

import pytest

from tests.support.chromium import Browser, chromium, find


def _named_chromium(tmp_path, monkeypatch, script: str) -> None:
    program = tmp_path / "chromium"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_tests_begin_when_the_browser_answers(tmp_path, monkeypatch, browser: Browser):
    """No time limit of a page includes the browser's start."""
    _named_chromium(tmp_path, monkeypatch, f'sleep 2; touch {tmp_path}/started; exec {find()} "$@"')
    with chromium() as slow:
        assert (tmp_path / "started").exists()
        assert slow.new_page().run("1 + 1") == 2


def test_a_browser_that_ends_at_its_start_is_told_at_once(tmp_path, monkeypatch, processes):
    """Nobody waits for its answer."""
    _named_chromium(tmp_path, monkeypatch, "exit 1")
    with pytest.raises(AssertionError, match=r"Chromium ended before Browser\.getVersion"), chromium():
        pass
