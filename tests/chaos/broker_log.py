"""What the broker's own log tells of faults of the broker's."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ("rewound",)

_REWOUND = re.compile(
    rb"^(\S+ \S+) .*Ignored load completion from (__consumer_offsets-\d+) because context is in ACTIVE state",
    re.MULTILINE,
)


def rewound(log: Path) -> list[str]:
    """When the broker may have answered with committed offsets of the past, in words.

    A broker that starts may load the committed offsets twice. When the first load ends late, its end counts as that of the
    second one (Kafka 4.1, `CoordinatorRuntime`): the offsets are served while the second load still goes through
    them from the beginning. A task that is taken over in these seconds goes on where it was minutes before, whatever its
    owners do, and so would one of Kafka Streams.
    """
    found = _REWOUND.findall(log.read_bytes()) if log.exists() else []
    return [f"{place.decode()} until {moment.decode()}" for moment, place in found]
