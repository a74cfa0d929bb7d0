"""One check for each program whose commands the documentation shows.

A check gets the words of a call, and whether it stands in a sentence. It returns nothing, or raises `Wrong`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from unittest import mock

import click
import yaml
from click.testing import CliRunner

from millpond.cli import cli as millpond_command
from millpond_operator.__main__ import command as operator_command

from .pages import ROOT, Command, blocks, simple_commands

__all__ = ("CHECKED_ELSEWHERE", "NOT_RUN", "PROGRAMS", "Wrong", "check")

CHECKED_ELSEWHERE = {
    "helm": "test_doc_helm.py, with Helm 3 and Helm 4",
    "kubectl": "test_doc_kubectl.py, with an API server",
}
NOT_RUN = {
    "cd": "a shell builtin",
    "base64": "a program of the system",
    "curl": "a program of the system; tests/runtime/http asks the paths",
    "date": "a program of the system",
    "diff": "a program of the system",
    "echo": "a shell builtin",
    "grep": "a program of the system",
    "openssl": "a program of the system",
    "sha256sum": "a program of the system; tests/packaging/test_release.py checks the file it reads",
    "kind": "a program of other people, which e2e/ runs",
    "kafka-console-consumer.sh": "Kafka's own program, in no wheel",
    "kafka-acls.sh": "Kafka's own program, in no wheel; tests/cli/acls reads its lines",
    "source": "activates an environment; tests/demo/test_readme.py does it",
    "export": "a shell builtin",
    "java": "a program of the JDK; test_doc_migrating.py runs its commands",
    "javac": "a program of the JDK; test_doc_migrating.py runs its commands",
}
"""Programs whose commands are only listed, and the reason."""


_INCOMPLETE = (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError)
"""What click says about a command that a sentence only names, such as `millpond dev --workers`."""


class Wrong(Exception):
    """A command of a page cannot work; the message has the reason."""


_Check = Callable[[Command, Sequence[str]], None]


def check(command: Command) -> None:
    """Check a command of a page by the rules of its programs.

    Raises:
        Wrong: a program has no rule, or its rule is broken.
    """
    for words in simple_commands(command.text):
        program = words[0].removeprefix(".venv/bin/")
        if program in _RULES:
            _RULES[program](command, words)
        elif program not in NOT_RUN and program not in CHECKED_ELSEWHERE:
            raise Wrong(f"no rule covers {program!r}: add one to {__name__}, or a reason to NOT_RUN")


def _make(_: Command, words: Sequence[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words[1:]:
        name, is_variable, _value = word.partition("=")
        if is_variable and f"$({name}" not in makefile:
            raise Wrong(f"the Makefile does not use {name}")
        if not is_variable and not re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE):
            raise Wrong(f"the Makefile has no task {word}")


def _millpond(command: Command, words: Sequence[str]) -> None:
    _parse(millpond_command, command, words[1:])


def _python(command: Command, words: Sequence[str]) -> None:
    if words[1:3] == ["-m", "millpond_operator"]:
        _parse(operator_command, command, words[3:])
    elif words[1] == "-m":
        path = words[2].replace(".", "/")
        places = [
            ROOT / root / f"{path}{end}"
            for root in ("", "worker", "operator", "spark")
            for end in (".py", "/__main__.py")
        ]
        if words[2] not in {"pytest", "venv"} and not any(place.exists() for place in places):
            raise Wrong(f"there is no program {words[2]}")
    elif not any(each.text.startswith(f"# {words[1]}\n") for each in blocks(command.page)):
        raise Wrong(f"the page does not show {words[1]}")


def _parse(program: click.Command, command: Command, words: Sequence[str]) -> None:
    """Let click read all options and arguments, and run nothing."""
    with mock.patch.object(click.Command, "invoke", lambda *_: None):
        outcome = CliRunner().invoke(program, list(words), standalone_mode=False)
    failure = outcome.exception
    if failure is None or (command.inline and isinstance(failure, _INCOMPLETE)):
        return
    if not isinstance(failure, click.ClickException):
        raise failure
    raise Wrong(failure.format_message())


def _pip(_: Command, words: Sequence[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if (named := re.fullmatch(r"millpond\[(.+)\]", word)) and not set(named[1].split(",")) <= set(extras):
            raise Wrong(f"pyproject.toml has no extra {named[1]}")


def _uv(command: Command, words: Sequence[str]) -> None:
    """The subcommands of pages; tests/installing/test_user_project.py installs with uv."""
    if words[1] == "run":
        check(Command(command.page, command.line, " ".join(words[2:]), command.inline))
    elif words[1] in {"add", "sync"}:
        _pip(command, words)
    else:
        raise Wrong(f"no rule covers uv {words[1]}")


def _docker(_: Command, words: Sequence[str]) -> None:
    """Docker is not on every machine: only the files and services of the repository are checked."""
    if words[1] == "build" and "-f" in words and not (ROOT / words[words.index("-f") + 1]).exists():
        raise Wrong(f"there is no {words[words.index('-f') + 1]}")
    if words[1] == "compose" and "--scale" in words:
        service = words[words.index("--scale") + 1].partition("=")[0]
        if service not in yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]:
            raise Wrong(f"compose.yaml has no service {service}")
    if words[1] == "run" and "millpond" in words:
        start = words.index("millpond")
        _millpond(Command("", 0, ""), words[start:])


def _uvicorn(_: Command, words: Sequence[str]) -> None:
    """The service is in the repository; tests/examples runs it."""
    path = words[1].partition(":")[0].replace(".", "/")
    if not (ROOT / f"{path}.py").exists():
        raise Wrong(f"there is no module {path}.py")


def _jupyter(_: Command, words: Sequence[str]) -> None:
    """The notebook is in the repository; tests/examples runs it."""
    if not (ROOT / words[-1]).exists():
        raise Wrong(f"there is no notebook {words[-1]}")


_RULES: dict[str, _Check] = {
    "make": _make,
    "millpond": _millpond,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "docker": _docker,
    "uv": _uv,
    "uvicorn": _uvicorn,
    "jupyter": _jupyter,
}
PROGRAMS = frozenset({*_RULES, *CHECKED_ELSEWHERE, "kind"})
"""Programs whose calls are commands wherever they stand."""
