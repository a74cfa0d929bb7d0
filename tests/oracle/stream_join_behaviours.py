"""The joins of two streams in java/Behaviours.java, built with millpond."""

from __future__ import annotations

from datetime import timedelta

import millpond as mp
from tests.oracle.behaviours import String, case, in_, letter, out


def other(b: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return b.stream("rows", key=String, value=String)


def apart(before_ms: int, after_ms: int, grace_ms: int) -> mp.JoinWindows:
    ms = timedelta(milliseconds=1)
    return mp.JoinWindows(before_ms * ms, after_ms * ms, grace_ms * ms)


def plainly(v: str, r: str) -> str:
    return v + r


class Coarse(mp.FixedKeyProcessor[str, str, str]):
    """Times in steps of 200 ms, so that many are equal."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_timestamp(record.timestamp // 200 * 200))


def coarse(s: mp.KStream[str, str]) -> mp.KStream[str, str]:
    return s.process_values(Coarse, value=String)


@case
def stream_join(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).join(other(b), lambda k, v, r: k + v + r, apart(200, 200, 100), with_key=True))


@case
def stream_join_before(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).join(other(b), plainly, apart(300, 0, 0)))


@case
def stream_join_gap(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).join(other(b), plainly, apart(-10, 300, 40)))


@case
def stream_join_same_time(b: mp.StreamsBuilder, h: bool) -> None:
    out(coarse(in_(b)).join(coarse(other(b)), plainly, apart(0, 0, 300)))


@case
def stream_join_no_time(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).join(other(b), plainly, apart(0, 0, 0)))


@case
def stream_join_rekeyed(b: mp.StreamsBuilder, h: bool) -> None:
    by_letter = in_(b).select_key(lambda _, v: letter(v), key=String)
    out(by_letter.join(other(b).select_key(lambda _, v: letter(v), key=String), plainly, apart(100, 50, 10)))


@case
def stream_join_self(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.join(s, plainly, apart(30, 30, 20)))


def either(v: str | None, r: str | None) -> str:
    return f"{v}{r}".replace("None", "null")


def keyed(k: str, v: str | None, r: str | None) -> str:
    return f"{k}{v}{r}".replace("None", "null")


@case
def stream_left_join(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).left_join(other(b), keyed, apart(100, 100, 50), with_key=True))


@case
def stream_outer_join(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).outer_join(other(b), keyed, apart(100, 100, 50), with_key=True, store="kept"))


@case
def stream_outer_join_before(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).outer_join(other(b), either, apart(200, 0, 0), persistent=False))


@case
def stream_left_join_gap(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).left_join(other(b), either, apart(-10, 200, 40)))


@case
def stream_outer_join_gap(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).outer_join(other(b), either, apart(150, -20, 10)))


@case
def stream_outer_join_same_time(b: mp.StreamsBuilder, h: bool) -> None:
    out(coarse(in_(b)).outer_join(coarse(other(b)), either, apart(0, 0, 300)))


@case
def stream_outer_join_no_time(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).outer_join(other(b), either, apart(0, 0, 0)))


@case
def stream_outer_join_rekeyed(b: mp.StreamsBuilder, h: bool) -> None:
    by_letter = in_(b).select_key(lambda _, v: letter(v), key=String)
    out(by_letter.outer_join(other(b).select_key(lambda _, v: letter(v), key=String), either, apart(100, 50, 10)))


@case
def stream_left_join_self(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.left_join(s, either, apart(-5, 30, 20)))
