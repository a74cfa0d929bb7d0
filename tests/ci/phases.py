"""The phases of the checks before a change lands, in their order. Each job of GitHub's workflows runs one of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("PHASES", "Phase")


@dataclass(frozen=True)
class Phase:
    """One phase.

    Attributes:
        name: the name in the table, and of the option `--only`.
        target: what make runs.
        arguments: for pytest.
        tests: whether it runs tests of this machine, which take the seed of the tree.
        on_cluster: whether it needs a Kubernetes cluster.
    """

    name: str
    target: str
    arguments: tuple[str, ...] = ()
    tests: bool = False
    on_cluster: bool = False

    def command(self, seed: int) -> list[str]:
        """Return the command, which also repeats the phase by itself."""
        arguments = [*self.arguments, *(["--seed", str(seed)] if self.tests else [])]
        return ["make", "--no-print-directory", self.target, *([f"ARGS={' '.join(arguments)}"] if arguments else [])]


PHASES = (
    Phase("lint", "lint"),
    Phase("test", "test", tests=True),
    Phase("long", "test-long", tests=True),
    Phase("e2e", "e2e", ("-m", "core"), on_cluster=True),
)
"""Lint, the tests, the long tests, and the core of e2e. Everything else is `make nightly`."""
