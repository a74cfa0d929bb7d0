"""Commands of Helm in the documentation are right, for both versions; e2e/test_chart.py runs them on a cluster."""

from __future__ import annotations

import shlex
import subprocess

import pytest
import yaml

from tests.chart.rendering import Rendering, rendered_by_helm
from tests.support.programs.helm import HELM_3, HELM_4

from .pages import PAGES, ROOT, Command, blocks, commands, pages_with, simple_commands

_CHART = "helm/millpond"


def helm_commands() -> list[Command]:
    """Return the commands of Helm in all pages."""
    every = (each for page in pages_with("helm") for each in commands(page, frozenset({"helm"})))
    return [each for each in every if "helm" in each.text.split()[:1]]


@pytest.fixture(scope="module")
def rendering(helm) -> Rendering:
    """The chart, rendered by Helm 4."""
    return Rendering(helm[HELM_4])


@pytest.mark.parametrize("program", [HELM_3, HELM_4])
def test_both_helms_know_every_command(program, helm):
    """`install` and `upgrade` render the chart with their values; the options of the others exist."""
    told = {}
    for command in {each.text: each for each in helm_commands()}.values():
        [words] = simple_commands(command.text)
        if words[1] in {"install", "upgrade"} and words[3:4] == [_CHART]:
            assert "kind: Deployment" in rendered_by_helm(helm[program], shlex.join(words)), command
            continue
        if words[1] not in told:
            told[words[1]] = subprocess.run(
                [helm[program], words[1], "--help"], check=True, capture_output=True, text=True
            ).stdout
        options = {each.partition("=")[0] for each in words if each.startswith("--")}
        assert {each for each in options if f"{each} " not in told[words[1]]} == set(), command


def test_values_of_pages_render(rendering: Rendering):
    """A YAML block that begins with the comment `# values.yaml` is a file for `--values`."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "yaml" and block.text.startswith("# values.yaml"):
                assert "kind: Deployment" in rendering.text(yaml.safe_load(block.text)), f"{page}:{block.line}"


def test_jobs_and_deployments_in_commands_are_those_of_the_chart(rendering: Rendering):
    """`kubectl logs job/NAME` and `kubectl delete deployment NAME` name objects that the chart makes."""
    names = {f"{each['kind']}/{each['metadata']['name']}".lower() for each in rendering.objects()}
    named = {
        word
        for page in PAGES
        for command in commands(page, frozenset({"kubectl"}))
        for words in simple_commands(command.text)
        for word in " ".join(words).replace(" deployment ", " deployment/").split()
        if word.startswith(("job/", "deployment/"))
    }
    assert named >= {"job/millpond-uninstall-check", "deployment/millpond-operator"}
    assert named <= names


def test_commands_of_helm_are_found():
    """The reader of pages finds what this module checks."""
    assert len([each for each in helm_commands() if not each.inline]) >= 8
    assert (ROOT / _CHART / "Chart.yaml").exists()
