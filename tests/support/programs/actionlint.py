"""actionlint, which checks GitHub workflows: built once from its Go module, or installed on this machine."""

from __future__ import annotations

from tests.support.programs.go import GoProgram

__all__ = ("PROGRAM",)

PROGRAM = GoProgram(
    "actionlint", "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12", "install Go, which builds it", on_path=True
)
