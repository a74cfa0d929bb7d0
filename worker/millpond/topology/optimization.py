"""The names of the rewrites of `topology.optimization`."""

from __future__ import annotations

from millpond.errors import TopologyError

__all__ = ("OPTIMIZATIONS", "check_optimization", "parse_optimization")

OPTIMIZATIONS = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")
"""All rewrites, in the order in which they are applied."""


def parse_optimization(text: str) -> frozenset[str]:
    """Return the rewrites that a text names: `none`, `all`, or names divided by commas.

    Raises:
        ValueError: a name is unknown, or `none` or `all` is combined with others. The message says what can be used.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["none"]:
        return frozenset()
    if names == ["all"]:
        return frozenset(OPTIMIZATIONS)
    if not set(names) <= set(OPTIMIZATIONS):
        raise ValueError(f"expected 'none', 'all', or one or more of {', '.join(OPTIMIZATIONS)}")
    return frozenset(names)


def check_optimization(applied: frozenset[str] | None, setting: str) -> None:
    """Check that a topology was built with the rewrites that a configuration names.

    Args:
        applied: the topology's rewrites; None if it was not made by the DSL, which alone is rewritten.
        setting: `topology.optimization`; with `none`, those that `build()` was given are taken.

    Raises:
        TopologyError: the rewrites differ.
    """
    wanted = parse_optimization(setting)
    if applied is None or not wanted or wanted == applied:
        return
    built = ", ".join(rule for rule in OPTIMIZATIONS if rule in applied) or "none"
    raise TopologyError(
        f"topology.optimization is '{setting}', but the topology was built with {built}; write "
        f"builder.build(optimization={setting!r}), or leave the setting out."
    )
