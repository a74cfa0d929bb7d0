"""What a test needs besides Python, derived from its fixtures, so that nobody has to mark a test.

A test with none of these marks is plain: it needs no jars, no Go, no network and no child processes. `make check` runs the
plain tests.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("MARKERS", "needs")

MARKERS = {
    "broker": "needs a Kafka broker, and with it the jars",
    "apiserver": "needs a real kube-apiserver with etcd, which are built from Go modules once",
    "s3": "needs an S3 server, which is built from a Go module once",
    "process": "starts processes of its own: workers, commands, type checkers",
    "spark": "needs Spark, and with it a full Java runtime",
    "soak": "takes minutes: `make soak` runs it, `make test` does not",
    "slow": "takes seconds of computing, or runs a whole simulated operator",
}
"""The marks, and what each says of a test; `slow` is given by hand, too, and `soak` only so."""

_BY_FIXTURE = {
    "broker": "broker",
    "own_broker": "broker",
    "own_brokers": "broker",
    "api_server": "apiserver",
    "versitygw": "s3",
    "processes": "process",
    "spark": "spark",
    "real_world": "slow",
    "world": "slow",
}


def needs(fixtures: Iterable[str]) -> list[str]:
    """Return the marks of a test with these fixtures, those of its fixtures' fixtures included."""
    found = {_BY_FIXTURE[name] for name in fixtures if name in _BY_FIXTURE}
    return [marker for marker in MARKERS if marker in found]
