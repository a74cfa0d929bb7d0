"""Errors in an application's own code name its line, and their tracebacks leave out the frames of libraries."""

from __future__ import annotations

import json

import pytest

from millpond.dsl import StreamsBuilder
from millpond.errors import ProcessingFailed
from millpond.serdes import Long, String
from millpond.testing import TopologyTestDriver
from millpond.user_code import own_traceback, place_of


def _divide(text: str) -> int:
    return 1 // len(text)


def test_an_error_in_own_code_names_the_line_that_raised_it() -> None:
    """The innermost line of the application is in the message, and its traceback has no frames of libraries."""
    builder = StreamsBuilder()
    builder.stream("in", key=String, value=String).map_values(lambda text: _divide(text)).to("out", value=Long)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed) as caught:
        driver.create_input_topic("in", key=String, value=String).pipe_input("a", "")
    line = _divide.__code__.co_firstlineno + 1
    assert f"test_own_tracebacks.py, line {line}, in _divide()). Its offset" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    shown = own_traceback(caught.value.__cause__)
    assert [text for text in shown.splitlines() if "File" in text and "test_own_tracebacks.py" not in text] == []
    assert "and 1 call in libraries" in shown
    assert shown.splitlines()[-1].startswith("ZeroDivisionError: ")


def test_an_error_in_no_line_of_the_application_names_none() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        json.loads(b"\xff")
    caught.value.__traceback__ = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    assert place_of(caught.value) is None
    assert own_traceback(caught.value) == ""
