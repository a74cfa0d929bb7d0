"""Faults of the broker itself, from its log."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ("rewound",)

_REWOUND = re.compile(
    rb"^(\S+ \S+) .*Ignored load completion from (__consumer_offsets-\d+) because context is in ACTIVE state",
    re.MULTILINE,
)


def rewound(log: Path) -> list[str]:
    """Return when the broker may have served outdated committed offsets, as texts.

    A starting broker may load the committed offsets twice. If the first load ends late, its end counts as that of the
    second one (Kafka 4.1, `CoordinatorRuntime`): offsets are served while the second load still reads them from the
    beginning. A task that is taken over in these seconds continues minutes in the past, whatever its owners do; in
    Kafka Streams, too.
    """
    found = _REWOUND.findall(log.read_bytes()) if log.exists() else []
    return [f"{place.decode()} until {moment.decode()}" for moment, place in found]
