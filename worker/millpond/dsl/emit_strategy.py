"""EmitStrategy: when a windowed aggregation sends its results."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.calls import checked_call, checked_class
from millpond.checks import kind_of
from millpond.errors import TopologyError

__all__ = ("EmitStrategy", "check_strategy")


@checked_class
@dataclass(frozen=True)
class EmitStrategy:
    """When a windowed aggregation sends its results (KIP-825): `on_window_update()`, or `on_window_close()`.

    >>> import millpond as mp
    >>> mp.EmitStrategy.on_window_close()
    EmitStrategy(final=True)
    """

    final: bool = False
    """Whether only the final result of each window is sent."""

    @staticmethod
    @checked_call
    def on_window_update() -> EmitStrategy:
        """Return the strategy that sends a window's result with each update; it is the default."""
        return EmitStrategy()

    @staticmethod
    @checked_call
    def on_window_close() -> EmitStrategy:
        """Return the strategy that sends each window's result once, after the window has closed.

        A window has closed when stream time has reached its end plus grace; a sliding window, when stream time has
        passed it, and a session, when stream time has passed its end plus gap plus grace. Results are sent while a
        record is processed, with its headers and at most once per second, in the order of the windows' starts; those of
        sessions in the order of their ends.
        """
        return EmitStrategy(final=True)


def check_strategy(strategy: object) -> None:
    """Check the argument of `emit_strategy()`.

    Raises:
        TopologyError: it is no `EmitStrategy`.
    """
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(
            "emit_strategy() needs mp.EmitStrategy.on_window_close() or mp.EmitStrategy.on_window_update(), not "
            f"{kind_of(strategy)}."
        )
