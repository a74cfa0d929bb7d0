"""Short hashes in names, with the letters that Kubernetes uses."""

from __future__ import annotations

__all__ = ("short_hash",)

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def short_hash(data: bytes) -> str:
    """FNV-1, 32 bits, as a decimal number in safe letters."""
    value = 2166136261
    for byte in data:
        value = (value * 16777619) & 0xFFFFFFFF
        value ^= byte
    return "".join(_LETTERS[ord(each) % len(_LETTERS)] for each in str(value))
