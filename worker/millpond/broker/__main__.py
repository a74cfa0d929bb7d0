"""`python -m millpond.broker [SET ...]` fetches jars ahead of use; without arguments, those of the broker."""

from __future__ import annotations

import sys

from millpond.broker import jars
from millpond.errors import MillpondError

try:
    for name in sys.argv[1:] or ["kafka"]:
        jars.paths(name)
except MillpondError as error:
    sys.exit(f"millpond: {error}")
