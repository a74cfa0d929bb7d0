"""The check of all outputs and of the tables' changelogs of the application with every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.chaos.checks.truth import Finding
from tests.chaos.operators.interleavings import INTERLEAVED, wrong_interleaving
from tests.chaos.operators.pairs import PAIRED, wrong_pairs
from tests.chaos.operators.replaying import REPLAYED, replay, wrong_replayed
from tests.chaos.operators.sums import SUMMED, wrong_sums
from tests.support.kafka import Row

__all__ = ("CHECKED", "find_in_changelogs_of_tables", "find_in_outputs")

CHECKED = frozenset({*REPLAYED, *PAIRED, *INTERLEAVED, *SUMMED})
"""The outputs that are checked."""


def find_in_outputs(
    inputs: Mapping[str, Sequence[Row]], outputs: Mapping[str, Sequence[Row]], *, optimized: bool
) -> list[Finding]:
    """Return violations in the outputs.

    Args:
        inputs: the committed records of each input, in the order of the broker.
        outputs: those of each output.
        optimized: whether the topology was optimized.
    """
    expected = replay(inputs, optimized=optimized)
    wrong = [(name, wrong_replayed(outputs[name], expected[name])) for name in REPLAYED]
    wrong += [(name, wrong_pairs(name, outputs[name], inputs)) for name in PAIRED]
    wrong += [(name, wrong_interleaving(name, outputs[name], inputs)) for name in INTERLEAVED]
    wrong += [(name, wrong_sums(name, outputs[name], inputs)) for name in SUMMED]
    return [Finding(name, text) for name, texts in wrong for text in texts]


def find_in_changelogs_of_tables(
    changelogs: Mapping[str, Sequence[Row]], outputs: Mapping[str, Sequence[Row]]
) -> list[Finding]:
    """Return tables whose changelog does not end, for each key, with the last record of the output of the same name."""
    return [
        Finding(f"changelog of {store}", f"{key!r} ends with {log.get(key)}, but the output with {out.get(key)}")
        for store in changelogs.keys() & outputs.keys()
        for log, out in [(_last(changelogs[store]), _last(outputs[store]))]
        for key in sorted({*log, *out})
        if log.get(key) != out.get(key)
    ]


def _last(rows: Sequence[Row]) -> dict[bytes, tuple[bytes, int]]:
    """Return the last value and timestamp of each key that was not deleted."""
    last = {row.key or b"": row for row in rows}
    return {key: (row.value, row.timestamp) for key, row in last.items() if row.value is not None}
