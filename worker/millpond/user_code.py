"""The place in the user's own code at which an exception was raised."""

from __future__ import annotations

import sysconfig
from pathlib import PurePath

__all__ = ("place_of", "raised_in_millpond")

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def place_of(error: BaseException) -> str | None:
    """Return file, line and function of the innermost call of an exception that is the user's, as `app.py, line 7`.

    Calls inside millpond, the standard library and installed packages are passed over. None without such a call.
    """
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not (_ours(module) or code.co_filename.startswith((*_LIBRARIES, "<frozen"))):
            named = "" if code.co_name in ("<lambda>", "<module>") else f", in {code.co_name}()"
            found = f"{PurePath(code.co_filename).name}, line {trace.tb_lineno}{named}"
        trace = trace.tb_next
    return found


def raised_in_millpond(error: BaseException) -> bool:
    """Return whether the innermost call of an exception is millpond's, and not the user's or a library's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _ours(str(trace.tb_frame.f_globals.get("__name__", "")))


def _ours(module: str) -> bool:
    return module == "millpond" or module.startswith("millpond.")
