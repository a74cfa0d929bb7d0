"""The needs of a test besides Python, derived from its fixtures, so that tests need no marks.

A test with none of these marks is plain: it needs no jars, no Go, no network and no child processes. `make check` runs
the plain tests.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("MARKERS", "needs")

MARKERS = {
    "broker": "needs a Kafka broker, and with it the jars",
    "apiserver": "needs a real kube-apiserver with etcd, which are downloaded once, or built from Go modules",
    "s3": "needs an S3 server, which is downloaded once, or built from a Go module",
    "chromium": "needs Chromium, such as Debian's package chromium",
    "helm": "needs Helm 3 and 4, which are downloaded once, or built from Go modules",
    "actionlint": "needs actionlint, which is built once from a Go module, and starts it",
    "prometheus": "needs Prometheus, which is taken once from Debian's package",
    "java": "needs a JDK, and the jars of Kafka Streams",
    "process": "starts processes: workers, commands, type checkers",
    "spark": "needs Spark, and with it a full Java runtime",
    "soak": "takes minutes: `make nightly` runs it, `make test` does not",
    "long": "takes ten seconds and more of a quiet machine: `make test-long` runs it, `make test` does not",
    "slow": "takes seconds of computing, or runs a whole simulated operator",
    "share": "has many long cases: `make test` runs this number of them, chosen by the seed, and `make nightly` all",
}
"""The marks and their meanings; `slow` is also set by hand, `long`, `soak` and `share` only by hand."""

_BY_FIXTURE = {
    "broker": "broker",
    "own_broker": "broker",
    "own_brokers": "broker",
    "api_server": "apiserver",
    "versitygw": "s3",
    "browser": "chromium",
    "helm": "helm",
    "actionlint": "actionlint",
    "prometheus": "prometheus",
    "original": "java",
    "processes": "process",
    "spark": "spark",
    "real_world": "slow",
    "world": "slow",
}


def needs(fixtures: Iterable[str]) -> list[str]:
    """Return the marks of a test with these fixtures, which include the fixtures of its fixtures."""
    found = {_BY_FIXTURE[name] for name in fixtures if name in _BY_FIXTURE}
    return [marker for marker in MARKERS if marker in found]
