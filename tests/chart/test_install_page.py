"""The commands of `docs/install.md` are right; e2e/test_chart.py runs the chart's on a cluster."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess

import pytest

from helm.generate import CHART, ROOT
from tests.chart.rendering import rendered_by_helm
from tests.support.helm import HELM_3, HELM_4

PAGE = (ROOT / "docs" / "install.md").read_text()
COMMANDS = [line.strip() for line in re.findall(r"^ {4}((?:helm|kubectl|docker) .*)$", PAGE, re.MULTILINE)]
INLINE = [each for each in re.findall(r"`((?:helm|kubectl) [a-z]+ [^`]+)`", PAGE) if "NAME" not in each]


def test_the_page_has_commands():
    """The patterns of this module find what they look for."""
    assert len([each for each in COMMANDS if each.startswith("helm")]) >= 8
    assert len(INLINE) >= 4


@pytest.mark.parametrize("program", [HELM_3, HELM_4])
def test_both_helms_know_every_command_of_the_page(program, helm):
    """`install` and `upgrade` render the chart with their values; the options of the others exist."""
    for command in (each for each in [*COMMANDS, *INLINE] if each.startswith("helm ")):
        words = shlex.split(command)
        if words[1] in {"install", "upgrade"} and len(words) > 3 and words[3] == "helm/millpond":
            assert "kind: Deployment" in rendered_by_helm(helm[program], command)
            continue
        told = subprocess.run([helm[program], words[1], "--help"], check=True, capture_output=True, text=True).stdout
        assert [each for each in words if each.startswith("--") and each.partition("=")[0] not in told] == [], command


def test_other_commands_name_what_there_is(rendering):
    """Directories, Dockerfiles and objects of the chart exist."""
    objects = rendering.objects({"crds": {"install": False}})
    names = {f"{each['kind']}/{each['metadata']['name']}".lower() for each in objects}
    for command in [*COMMANDS, *INLINE]:
        words = shlex.split(command)
        for flag, path in itertools.pairwise(words):
            assert flag not in {"-k", "-f"} or (ROOT / path).exists(), command
        for word in words:
            assert not word.startswith("job/") or word in names, command
        if words[:3] == ["kubectl", "delete", "deployment"]:
            assert f"deployment/{words[3]}" in names


def test_the_page_names_values_that_exist():
    """A value that is renamed is renamed in the page."""
    known = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    roots = {each.partition(".")[0] for each in known}
    named = {each for each in re.findall(r"`([a-z]\w*(?:\.\w+)+)(?::[^`]*)?`", PAGE) if each.partition(".")[0] in roots}
    assert len(named) > 10
    assert {each for each in named if each not in known and not any(k.startswith(f"{each}.") for k in known)} == set()
