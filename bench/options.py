"""`name=value` arguments: how the bench tells its child processes, Java's and Python's alike, what to do."""

from __future__ import annotations

from collections.abc import Sequence


def to_arguments(**options: object) -> list[str]:
    """`to_arguments(topic="in", partitions=10)` is `["topic=in", "partitions=10"]`."""
    return [f"{name}={value}" for name, value in options.items()]


def from_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """The reverse of `to_arguments`; values stay text and may contain `=`.

    Raises:
        ValueError: when an argument has no `=`.
    """
    options = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            message = f"{argument!r} is not of the form name=value"
            raise ValueError(message)
        options[name] = value
    return options
