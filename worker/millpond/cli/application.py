"""The application at `MODULE:ATTRIBUTE`: its topology, or an error with the nearest existing name."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from millpond.dsl import StreamsBuilder
from millpond.dsl.optimizing.rules import default_optimization
from millpond.errors import ConfigError, MillpondError
from millpond.names import OF_STREAMS
from millpond.runtime.config.parsers import nearest
from millpond.runtime.loading import StartedWhileLoading, loading
from millpond.texts import said
from millpond.topology import Topology
from millpond.topology.optimization import check_optimization, parse_optimization

__all__ = ("ApplicationError", "application_code", "attribute_name", "load_topology")

_UNDER_MAIN = "put that under `if __name__ == '__main__':`"


class ApplicationError(ConfigError):
    """`MODULE:ATTRIBUTE` does not lead to a topology."""


def attribute_name(target: str) -> str:
    """Return the last part of ``MODULE:ATTRIBUTE``, the application's name in displays."""
    return target.rpartition(":")[2].rpartition(".")[2]


@contextmanager
def application_code(optimization: str = "none") -> Iterator[None]:
    """Let the block import modules of the application, which may be in the current directory and must start no worker.

    Args:
        optimization: `topology.optimization`, for each `build()` that names no rewrites.
    """
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    with default_optimization(parse_optimization(optimization)), loading():
        yield


def load_topology(target: str, optimization: str = "none") -> Topology:
    """Return the topology at ``MODULE:ATTRIBUTE``; the module may be in the current directory.

    Args:
        target: names a `Topology`, a `StreamsBuilder`, or a function without arguments that returns one.
        optimization: `topology.optimization`, for each `build()` that names no rewrites.

    Raises:
        ApplicationError: the module or the attribute does not exist, is not an application, or raised an error.
        MillpondError: the application's code raised one of millpond's errors.
    """
    with application_code(optimization):
        topology = _load(target)
    check_optimization(topology.rewrites, optimization)
    return topology


def _load(target: str) -> Topology:
    module_name, colon, attributes = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ApplicationError(f"'{module_name}' is a file: name the module, as in '{dotted}:{attributes or 'NAME'}'.")
    if not module_name:
        raise ApplicationError(f"'{target}' names no module: write MODULE:ATTRIBUTE, as in 'app:build'.")
    module = _import(module_name)
    if not colon or not attributes:
        raise ApplicationError(f"'{target}' names no attribute: write MODULE:ATTRIBUTE{_candidates(module)}.")
    found: Any = module
    for part in attributes.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ApplicationError(
                f"module '{module_name}' has no '{attributes}'{_candidates(module, attributes)}."
            ) from None
    return _topology(found, target)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except StartedWhileLoading as error:
        raise ApplicationError(
            f"module '{name}' starts a worker when it is imported{_place(error)}: {_UNDER_MAIN}."
        ) from error
    except SystemExit as error:
        raise ApplicationError(f"module '{name}' exits when it is imported{_place(error)}: {_UNDER_MAIN}.") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise ApplicationError(f"module '{error.name}' does not exist{_modules_near(error.name)}.") from error
        raise ApplicationError(
            f"module '{name}' needs '{error.name}', which is not installed in this Python ({sys.executable})."
        ) from error
    except MillpondError:
        raise
    except Exception as error:  # the application's code may raise anything
        raise ApplicationError(f"module '{name}' cannot be imported: {_cause(error)}.") from error


def _topology(found: Any, target: str) -> Topology:
    if callable(found) and not isinstance(found, Topology | StreamsBuilder):
        found = _call(found, target)
    if inspect.iscoroutine(found):
        found.close()  # or Python would warn that nothing awaited it
        raise ApplicationError(
            f"'{target}' is an async def, whose result nothing awaits: write a plain def that returns the topology."
        )
    if isinstance(found, StreamsBuilder):
        found = found.build()
    if isinstance(found, Topology):
        return found
    raise ApplicationError(
        f"'{target}' is a {type(found).__qualname__}, but should be a Topology, a StreamsBuilder, or a function that "
        "returns one" + (" (is its return statement missing?)." if found is None else ".")
    )


def _call(function: Callable[[], Any], target: str) -> Any:
    try:
        required = [
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):  # a callable without a signature
        required = []
    if required:
        raise ApplicationError(
            f"'{target}' requires the arguments {', '.join(required)}: name a function without arguments, for example "
            "one that calls it."
        )
    try:
        return function()
    except StartedWhileLoading as error:
        raise ApplicationError(
            f"'{target}' starts a worker{_place(error)}, but should return the topology: the command starts the worker."
        ) from error
    except SystemExit as error:
        raise ApplicationError(f"'{target}' exits{_place(error)}, but should return the topology.") from error
    except MillpondError:
        raise
    except Exception as error:
        raise ApplicationError(f"'{target}' failed: {_cause(error)}.") from error


def _cause(error: Exception) -> str:
    """Return the error and the line of the application that raised it."""
    text = f"{type(error).__name__}: {message}" if (message := said(error)) else type(error).__name__
    if isinstance(error, SyntaxError):
        return text if error.lineno is None or "line" in message else f"{text} (line {error.lineno})"
    hint = ""
    if isinstance(error, AttributeError) and error.obj is None and error.name in OF_STREAMS:
        hint = f"; to() and foreach() end a stream and return None, so call {error.name}() before them"
    return f"{text}{_place(error)}{hint}"


def _place(error: BaseException) -> str:
    """Return the line of the application that raised an error, as ` (app.py, line 3)`; empty if it is elsewhere."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith("<") and Path(frame.filename).is_relative_to(Path.cwd()):
            return f" ({Path(frame.filename).relative_to(Path.cwd())}, line {frame.lineno})"
    return ""


def _modules_near(name: str) -> str:
    directory = Path.cwd()
    files = {path.stem for path in directory.glob("*.py")}
    files |= {path.parent.name for path in directory.glob("*/__init__.py")}
    near = nearest(name, files)
    hint = f" (did you mean '{near}'?)" if near else ""
    return f" in {directory} or on Python's path{hint}"


def _candidates(module: ModuleType, wanted: str | None = None) -> str:
    """Return a hint with the attributes of the module that the user may mean."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Topology | StreamsBuilder)
            or (inspect.isfunction(value) and value.__module__ == module.__name__ and not _required(value))
        )
    ]
    if not names:
        return ""
    near = nearest(wanted, names) if wanted else None
    if near:
        return f" (did you mean '{module.__name__}:{near}'?)"
    return "; it has " + ", ".join(f"'{name}'" for name in names[:5])


def _required(function: Callable[..., Any]) -> bool:
    return any(each.default is each.empty for each in inspect.signature(function).parameters.values())
