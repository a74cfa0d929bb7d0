"""`name=value` arguments, which Java and Python child processes of the bench take."""

from __future__ import annotations

from collections.abc import Sequence


def to_arguments(**options: object) -> list[str]:
    """Return arguments: `to_arguments(topic="in", partitions=10)` is `["topic=in", "partitions=10"]`."""
    return [f"{name}={value}" for name, value in options.items()]


def from_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options of arguments, the reverse of `to_arguments`; values are texts and may contain `=`.

    Raises:
        ValueError: an argument has no `=`.
    """
    options = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            message = f"{argument!r} is not of the form name=value"
            raise ValueError(message)
        options[name] = value
    return options
