"""The public API as text: every public name with its signature.

    python -m tests.packaging.public_api            # show it
    python -m tests.packaging.public_api --write    # write public_api.txt and docs/api

`test_public_api.py` compares the text with `public_api.txt`, so that a change of the API is seen in a review.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millpond.calls import MovedName

FILE = Path(__file__).with_name("public_api.txt")

MODULES: dict[str, tuple[str, ...] | None] = {
    "millpond": None,
    "millpond.errors": None,
    "millpond.serdes": None,
    "millpond.serdes.registry": None,
    "millpond.state": (
        "KeyValueStore",
        "TimestampedKeyValueStore",
        "VersionedKeyValueStore",
        "SessionStore",
        "WindowStore",
        "TimestampedWindowStore",
    ),
    "millpond.testing": None,
    "millpond.queries": None,
    "millpond.broker": None,
}
"""Public modules with their public names; None stands for the module's `__all__`."""

MADE_BY_MILLPOND = frozenset({
    "BranchedKStream", "CogroupedKStream", "GlobalKTable", "KGroupedStream", "KGroupedTable", "KStream", "KTable",
    "KeyValueStore", "Rows", "SessionStore", "SessionWindowedCogroupedKStream", "SessionWindowedKStream", "Store",
    "TestInputTopic", "TestOutputTopic", "TimeWindowedCogroupedKStream", "TimeWindowedKStream",
    "TimestampedKeyValueStore", "TimestampedWindowStore", "TopologyDescription", "VersionedKeyValueStore",
    "WindowStore",
})  # fmt: skip
"""Classes whose objects programs only receive: their constructors are not public."""

_STORE = frozenset({
    "attach", "backend_reads", "cache_bytes", "cache_limit", "caching", "changelog_topic", "close", "committed",
    "detach", "dirty_bytes", "entry", "entry_as_of", "expired_puts", "find", "flush", "forwarded", "incomplete_until",
    "keep_origins", "metadata", "observed_stream_time", "on_flush", "put_raw", "restore", "restored_incomplete",
    "revert", "seal", "serialize_key", "stage", "stage_count", "shrink", "staged_bytes", "stored", "timestamped",
    "visible_from", "of_topic", "of_user", "peek",
})  # fmt: skip
INTERNAL: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "KeyValueStore",
            "TimestampedKeyValueStore",
            "VersionedKeyValueStore",
            "SessionStore",
            "WindowStore",
            "TimestampedWindowStore",
        ),
        _STORE,
    ),
    "GlobalKTable": frozenset({"lookup"}),
    "KTable": frozenset({"send_old_values", "view"}),
    "KeyValueStoreBuilder": frozenset({"build"}),
    "SessionStoreBuilder": frozenset({"build"}),
    "VersionedKeyValueStoreBuilder": frozenset({"build"}),
    "WindowStoreBuilder": frozenset({"build"}),
    "StateStoreBuilder": frozenset({"build"}),
    "Topology": frozenset({
        "add_body", "add_repartition_topic", "copartition", "copartition_groups", "global_stores", "nodes",
        "repartition_topics", "stores", "subtopologies",
    }),
}  # fmt: skip
"""Members without an underscore that other parts of millpond call, and programs do not."""

OPERATORS = frozenset({"__call__", "__enter__", "__exit__", "__iter__", "__len__", "__getitem__"})

LONGEST_LINE = 116

HEADER = (
    "# The public API of millpond: names and signatures. Do not edit by hand; rewrite it with\n"
    "#     python -m tests.packaging.public_api --write\n"
)


class Verbatim:
    """An annotation or a default that a signature shows as it is written in the source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def text() -> str:
    """Return the public API, one name per line, members indented below their class."""
    described: dict[int, str] = {}
    lines: list[str] = []
    for module_name, chosen in MODULES.items():
        module = importlib.import_module(module_name)
        lines += ["", f"[{module_name}]"]
        for name in sorted(chosen or module.__all__):
            value = getattr(module, name)
            if id(value) in described:
                lines.append(f"{name} = {described[id(value)]}")
            elif name != "__version__":
                described[id(value)] = f"{module_name}.{name}"
                lines += describe(name, value)
    return HEADER + "\n".join(lines) + "\n"


def describe(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one public name."""
    if inspect.ismodule(value):
        yield f"module {name}"
    elif inspect.isclass(value):
        yield f"class {name}{bases(value)}"
        yield from (f"    {line}" for line in members(name, value))
    elif inspect.isroutine(value):
        yield from function(name, value)
    elif typing.get_origin(value) is not None:
        yield f"{name} = {plain(str(value))}"
    else:
        yield f"{name}: {type(value).__name__}"


def bases(cls: type) -> str:
    """Return the base classes as they are written, without millpond's own that are not public."""
    shown = [
        plain(str(each)) if typing.get_origin(each) else each.__name__
        for each in getattr(cls, "__orig_bases__", cls.__bases__)
        if each is not object and not each.__name__.startswith("_") and not is_internal(typing.get_origin(each) or each)
    ]
    return f"({', '.join(shown)})" if shown else ""


def is_internal(cls: type) -> bool:
    return cls.__module__.startswith("millpond") and cls.__name__ not in importlib.import_module("millpond").__all__


def members(class_name: str, cls: type) -> Iterator[str]:
    """Yield the lines of a class's public members, inherited ones of millpond's classes too."""
    if issubclass(cls, enum.Enum):
        yield from (f"{each.name} = {each.value!r}" for each in cls)
        return
    if typing.is_typeddict(cls):
        yield from (f"{name}: {plain(annotation_text(each))}" for name, each in cls.__annotations__.items())
        return
    if class_name not in MADE_BY_MILLPOND and not getattr(cls, "_is_protocol", False):
        yield from constructor(cls)
    names = {name for owner in own_classes(cls) for name in {*vars(owner), *vars(owner).get("__annotations__", {})}}
    for name in sorted(names):
        if isinstance(inspect.getattr_static(cls, name, None), MovedName):
            continue
        if name in OPERATORS or not (name.startswith("_") or name in INTERNAL.get(class_name, ())):
            yield from member(cls, name)


def own_classes(cls: type) -> list[type]:
    return [each for each in cls.__mro__ if each.__module__.startswith("millpond")]


def constructor(cls: type) -> Iterator[str]:
    if any("__init__" in vars(each) or "__new__" in vars(each) for each in own_classes(cls)) or hasattr(
        cls, "__struct_fields__"
    ):
        yield from function("__init__", cls)


def member(cls: type, name: str) -> Iterator[str]:
    value = inspect.getattr_static(cls, name, None)
    written = next(
        (vars(each)["__annotations__"][name] for each in own_classes(cls) if has_annotation(each, name)), None
    )
    if written is not None:
        yield f"{name}: {plain(annotation_text(written))}"
    elif isinstance(value, property):
        result = inspect.signature(value.fget).return_annotation if value.fget else Any
        yield f"{name}: {plain(annotation_text(result))}" + ("" if value.fset else "  # read-only")
    elif isinstance(value, staticmethod | classmethod):
        yield f"@{type(value).__name__}"
        yield from function(name, getattr(cls, name))
    elif inspect.isroutine(value):
        yield from function(name, value)
    else:
        yield name


def has_annotation(cls: type, name: str) -> bool:
    return name in vars(cls).get("__annotations__", {})


def function(name: str, value: Any) -> Iterator[str]:
    """Yield one line per signature; overloads have one each."""
    overloads = typing.get_overloads(value) if inspect.isfunction(value) else []
    for each in overloads or [value]:
        try:
            signature = inspect.signature(each)
        except ValueError:
            yield f"def {name}(...)"
            continue
        if overloads:
            yield "@overload"
        yield from shown(f"{'async ' if inspect.iscoroutinefunction(each) else ''}def {name}", signature)


def shown(start: str, signature: inspect.Signature) -> Iterator[str]:
    """Yield a signature, with one parameter per line where it is long."""
    parameters = [
        each.replace(annotation=verbatim(each.annotation), default=shown_default(each.default))
        for each in signature.parameters.values()
    ]
    changed = signature.replace(parameters=parameters, return_annotation=verbatim(signature.return_annotation))
    line = plain(start + str(changed))
    if len(line) <= LONGEST_LINE:
        yield line
        return
    yield f"{start}("
    for text in written_parameters(changed):
        yield f"    {plain(text)},"
    yield plain(f") -> {signature.return_annotation}")


def written_parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield each parameter, with the marks `/` and `*` between them."""
    previous = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for each in signature.parameters.values():
        if previous is inspect.Parameter.POSITIONAL_ONLY and each.kind is not previous:
            yield "/"
        if each.kind is inspect.Parameter.KEYWORD_ONLY and previous.name not in ("KEYWORD_ONLY", "VAR_POSITIONAL"):
            yield "*"
        previous = each.kind
        yield str(each)


def verbatim(annotation: Any) -> Any:
    return annotation if annotation is inspect.Signature.empty else Verbatim(annotation_text(annotation))


def shown_default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    return Verbatim("...") if re.search(r" at 0x|<", repr(default)) else default


def annotation_text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return inspect.formatannotation(annotation)


def plain(annotation: str) -> str:
    """Return the text without the marks that differ between Python's versions."""
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", annotation)
    return re.sub(r"~|\b(?:typing|collections\.abc|datetime|millpond(?:\.\w+)*)\.(?=\w)", "", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} and docs/api instead of showing it")
    if parser.parse_args().write:
        from .api_pages import pages

        FILE.write_text(text(), encoding="utf-8")
        for path, page in pages().items():
            path.write_text(page, encoding="utf-8")
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
