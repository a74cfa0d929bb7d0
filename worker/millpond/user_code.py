"""The place in the user's own code at which an exception was raised, and its traceback without libraries."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path, PurePath
from types import FrameType

__all__ = ("is_library", "is_millponds", "is_the_users", "own_traceback", "place_of", "raised_in_millpond")

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


_MILLPOND = str(Path(__file__).parent)


def is_library(path: str) -> bool:
    """Return whether a file of a traceback is of the standard library, an installed package or millpond."""
    return path.startswith((*_LIBRARIES, _MILLPOND, "<frozen"))


def place_of(error: BaseException) -> str | None:
    """Return file, line and function of the innermost call of an exception that is the user's, as `app.py, line 7`.

    Calls inside millpond, the standard library and installed packages are passed over. None without such a call.
    """
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_the_users(trace.tb_frame):
            named = "" if code.co_name in ("<lambda>", "<module>") else f", in {code.co_name}()"
            found = f"{PurePath(code.co_filename).name}, line {trace.tb_lineno}{named}"
        trace = trace.tb_next
    return found


def own_traceback(error: BaseException) -> str:
    """Return the traceback of an exception with the user's calls alone; empty if it has none of them."""
    own: list[traceback.FrameSummary] = []
    hidden = 0
    trace = error.__traceback__
    for frame in traceback.extract_tb(trace):
        assert trace is not None
        if is_the_users(trace.tb_frame):
            own.append(frame)
        else:
            hidden += 1
        trace = trace.tb_next
    if not own:
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)]
    if hidden:
        lines.append(f"  and {hidden} call{'s' if hidden > 1 else ''} in libraries, which --verbose shows\n")
    return "".join([*lines, *traceback.format_exception_only(error)])


def is_the_users(frame: FrameType) -> bool:
    """Return whether a call is of the user's code, and not of millpond, the standard library or a package."""
    module = str(frame.f_globals.get("__name__", ""))
    return not (_ours(module) or frame.f_code.co_filename.startswith((*_LIBRARIES, "<frozen")))


def is_millponds(frame: FrameType) -> bool:
    """Return whether a call is of millpond's code."""
    return _ours(str(frame.f_globals.get("__name__", "")))


def raised_in_millpond(error: BaseException) -> bool:
    """Return whether the innermost call of an exception is millpond's, and not the user's or a library's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _ours(str(trace.tb_frame.f_globals.get("__name__", "")))


def _ours(module: str) -> bool:
    return module == "millpond" or module.startswith("millpond.")
