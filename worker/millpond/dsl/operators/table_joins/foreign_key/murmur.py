"""Murmur3 with 128 bits, as Kafka Streams hashes the left values of joins by foreign key. Pure."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, unpack_from

__all__ = ("hash128",)

_SEED = 104729
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_MASK = 0xFFFFFFFFFFFFFFFF
_pack = Struct(">QQ").pack


_SMALL = 512
"""The largest value, in bytes, whose hash is remembered."""


def hash128(data: bytes) -> bytes:
    """Return the 16 bytes of the hash: both halves big-endian, as Kafka Streams writes them.

    A row is hashed when it subscribes, and again in the same task when its answer comes, so the last are remembered.
    """
    return _remembered(data) if len(data) <= _SMALL else _hash128(data)


def _hash128(data: bytes) -> bytes:
    length = len(data)
    h1 = h2 = _SEED
    blocks = length >> 4
    if blocks:
        words = iter(unpack_from(f"<{2 * blocks}Q", data))
        for k1, k2 in zip(words, words, strict=True):
            k1 = (k1 * _C1) & _MASK
            h1 ^= (((k1 << 31) | (k1 >> 33)) * _C2) & _MASK
            h1 = (((((h1 << 27) | (h1 >> 37)) & _MASK) + h2) * 5 + 0x52DCE729) & _MASK
            k2 = (k2 * _C2) & _MASK
            h2 ^= (((k2 << 33) | (k2 >> 31)) * _C1) & _MASK
            h2 = (((((h2 << 31) | (h2 >> 33)) & _MASK) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[blocks << 4 :]
    if len(rest) > 8:
        k2 = (int.from_bytes(rest[8:], "little") * _C2) & _MASK
        h2 ^= (((k2 << 33) | (k2 >> 31)) * _C1) & _MASK
    if rest:
        k1 = (int.from_bytes(rest[:8], "little") * _C1) & _MASK
        h1 ^= (((k1 << 31) | (k1 >> 33)) * _C2) & _MASK
    h1 ^= length
    h1 = (h1 + (h2 ^ length)) & _MASK
    h2 = ((h2 ^ length) + h1) & _MASK
    h1 ^= h1 >> 33
    h1 = (h1 * 0xFF51AFD7ED558CCD) & _MASK
    h1 ^= h1 >> 33
    h1 = (h1 * 0xC4CEB9FE1A85EC53) & _MASK
    h1 ^= h1 >> 33
    h2 ^= h2 >> 33
    h2 = (h2 * 0xFF51AFD7ED558CCD) & _MASK
    h2 ^= h2 >> 33
    h2 = (h2 * 0xC4CEB9FE1A85EC53) & _MASK
    h2 ^= h2 >> 33
    h1 = (h1 + h2) & _MASK
    return _pack(h1, (h2 + h1) & _MASK)


_remembered = lru_cache(maxsize=8192)(_hash128)
