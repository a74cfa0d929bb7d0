"""Every command of the documentation is valid: its program, its options and its arguments exist."""

from __future__ import annotations

import re

import pytest

from .pages import PAGES, ROOT, Command, commands, simple_commands
from .programs import PROGRAMS, Wrong, check


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_valid(page):
    """Programs without a rule are named, so a page cannot have a command that nothing checks."""
    wrong = []
    for command in commands(page, PROGRAMS):
        try:
            check(command)
        except Wrong as reason:
            wrong.append(f"{command}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_commands_are_found_wherever_they_stand():
    """The reader of pages finds fenced, indented and inline commands."""
    everywhere = [each for page in PAGES for each in commands(page, PROGRAMS)]
    assert len([each for each in everywhere if not each.inline]) > 80
    assert len([each for each in everywhere if each.inline]) > 100
    programs = {words[0] for each in everywhere for words in simple_commands(each.text)}
    assert programs >= {"make", "millpond", "python", "helm", "kubectl", "docker", "pip"}


def test_pipes_and_substitutions_are_several_calls():
    assert simple_commands("A=1 kubectl logs x | grep 'a|b'; kubectl scale y --replicas \"$(kubectl get z)\"") == [
        ["kubectl", "logs", "x"],
        ["grep", "a|b"],
        ["kubectl", "scale", "y", "--replicas", "$(kubectl get z)"],
        ["kubectl", "get", "z"],
    ]


def test_commands_in_a_subshell_are_several_calls():
    assert simple_commands("(cd build && java App)") == [["cd", "build"], ["java", "App"]]


def test_the_file_that_output_goes_to_is_no_argument():
    assert simple_commands("millpond consume x > y; cat y") == [["millpond", "consume", "x"], ["cat", "y"]]


def test_labels_and_annotations_in_commands_exist():
    """Names such as `millpond.dev/app` are those of the operator's sources."""
    names = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "operator" / "millpond_operator").rglob("*.py")
    )
    named = {
        name
        for page in PAGES
        for each in commands(page, PROGRAMS)
        for name in re.findall(r"\bmillpond\.dev/\w+", each.text)
    }
    assert len(named) >= 4
    assert {each for each in named if f'"{each}"' not in names} == set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("make tset", "no task tset"),
        ("make test ARGUMENTS=1", "does not use ARGUMENTS"),
        ("millpond query --adress x", "--adress"),
        ("millpond catalog diff counts", "Missing argument"),
        ("python -m millpond_operator --resync 5m", "--resync"),
        ("python -m millpond.nothing", "no program millpond.nothing"),
        ("pip install 'millpond[kafka]'", "no extra kafka"),
        ("docker build -f nothing/Dockerfile .", "no nothing/Dockerfile"),
        ("docker compose up --scale nothing=2", "no service nothing"),
        ("uvicorn examples.nothing:api --factory", "no module examples/nothing"),
        ("jupyter execute examples/nothing.ipynb", "no notebook examples/nothing"),
        ("flink run x", "no rule covers 'flink'"),
    ],
)
def test_wrong_commands_are_found(text, reason):
    with pytest.raises(Wrong, match=reason):
        check(Command("docs/install.md", 1, text))
