"""Commands of kubectl in the documentation run on a real API server, on the objects that they name.

Without kubelets nothing is logged or drained: of the commands that need nodes, options are checked.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.cluster import binaries
from tests.cluster.api import KINDS, ApiFailure, path_of
from tests.cluster.waiting import wait_for

from .cluster_objects import completed, objects
from .pages import PAGES, ROOT, Command, blocks, commands, pages_with, simple_commands

COMMANDS = [
    each for page in pages_with("kubectl") for each in commands(page, frozenset({"kubectl"})) if "kubectl" in each.text
]

_READING = frozenset({"describe", "get", "wait"})
_RUN = frozenset({"annotate", "apply", "create", "delete", "label", "patch", "replace", "scale"}) | _READING
_SUBCOMMANDS = _RUN | {"cordon", "drain", "exec", "logs", "port-forward", "proxy", "rollout", "top", "uncordon"}
_SHARED = re.compile(r" -k (?:crds|deploy)/| patch crd ")
"""Commands that would change what all tests of the run use, or another namespace: the API server checks them only."""
_NEEDS_MORE = {
    r" (?:nodes?|node-\d+)\b": "nodes are shared with all tests of the run, and drained by kubelets",
    r" --raw ": "needs a running operator",
    r" (?:certificates?|\S*scaledobjects?)\b": "kinds of cert-manager and KEDA",
}
"""Commands that the API server of the tests cannot run, and the reason: their options are checked."""
_WORDS_OF_A_WHOLE_COMMAND = 3
_NOT_SERVED = {"ScaledObject": "KEDA's definitions are in no package"}
"""Kinds that the API server does not know, and the reason."""


def call_of(command: Command) -> list[str]:
    """Return the words of the command's first call, with the subcommand before all options."""
    program, *words = simple_commands(command.text)[0]
    start = next(at for at, word in enumerate(words) if word in _SUBCOMMANDS)
    return [program, *words[start:], *words[:start]]


def is_run(command: Command) -> bool:
    """Whether the command can run as it stands: whole, and about what an API server without nodes has."""
    words = call_of(command)
    whole = len(words) >= _WORDS_OF_A_WHOLE_COMMAND and words[-1] not in {"-f", "-k"}
    return words[1] in _RUN and whole and not any(re.search(each, command.text) for each in _NEEDS_MORE)


RUN = list({each.text: each for each in COMMANDS if is_run(each)}.values())
NOT_RUN = list({each.text: each for each in COMMANDS if not is_run(each)}.values())

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(api_server) -> Path:
    """The program kubectl."""
    try:
        return binaries.find([binaries.KUBECTL])[binaries.KUBECTL]
    except binaries.BinariesMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def shell(api_server, program, namespace, tmp_path) -> Kubectl:
    """Runs a line in a shell whose kubectl has all rights, and the test's namespace as its own."""
    kubeconfig = api_server.admin.write_kubeconfig(tmp_path / "kubeconfig")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(program.parent), os.environ["PATH"]]),
    }
    config = ["config", "set-context", "--current", f"--namespace={namespace}"]
    subprocess.run([program, *config], env=environment, check=True, capture_output=True)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    return run


def within(namespace: str, text: str) -> str:
    """Return a command about one namespace, which changes nothing that other tests use."""
    text = re.sub(r"\| (?!kubectl).*", "", text)
    text = re.sub(r"(?:-n|--namespace) [\w-]+|--all-namespaces|-A\b", f"-n {namespace}", text)
    text = re.sub(r"namespace millpond-system", f"namespace {namespace}", text)
    if _SHARED.search(text):
        text += " --dry-run=server"
    if " -k deploy/" in text:  # its objects have a namespace of their own, which does not exist here
        text = text.replace("--server-side", "").replace("=server", "=client")
        text += " --ignore-not-found" if " delete " in text else ""
    return text


def put(api, namespace: str) -> None:
    """Create the objects that commands name, with their status."""
    # A pod needs the account, which comes a moment after the namespace.
    wait_for(lambda: api.find("ServiceAccount", namespace, "default"), "the namespace has its account")
    for given in objects():
        placed = {**given, "metadata": {**given["metadata"], "namespace": namespace}}
        api.apply(placed)
        if "status" in given:
            api.apply(placed, subresource="status")


@pytest.mark.long
def test_commands_run_on_an_api_server(api, crds, shell, namespace):
    """All of them succeed, and those that ask for a field show it. Those that delete something run last."""

    def failures(command: Command) -> list[str]:
        done = shell(within(namespace, command.text))
        if "-o jsonpath" in command.text and not done.returncode and not done.stdout.strip():
            return [f"{command}: it shows nothing"]
        return [f"{command}: {done.stderr.strip()}"] if done.returncode else []

    put(api, namespace)
    reading = [each for each in RUN if call_of(each)[1] in _READING]
    with ThreadPoolExecutor(4) as threads:
        wrong = [each for found in threads.map(failures, reading) for each in found]
    for command in sorted((each for each in RUN if each not in reading), key=lambda each: " delete " in each.text):
        if " delete " in command.text:
            put(api, namespace)
        wrong += failures(command)
    assert not wrong, "\n".join(wrong)


def test_commands_of_kubectl_are_found():
    """The reader of pages finds what this module runs."""
    assert len(RUN) > 40
    assert {word for each in RUN for words in simple_commands(each.text) for word in words} >= _RUN


def test_options_of_the_other_commands_exist(program):
    """They are those of `kubectl SUBCOMMAND --help`."""
    wrong = {str(command): unknown for command in NOT_RUN if (unknown := _unknown_options(program, call_of(command)))}
    assert wrong == {}


_HELP: dict[tuple[str, ...], str] = {}


def _help(program: Path, *words: str) -> str:
    if words not in _HELP:
        done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
        assert not done.returncode, f"kubectl {words}: {done.stderr}"
        _HELP[words] = done.stdout
    return _HELP[words]


def _unknown_options(program: Path, words: list[str]) -> set[str]:
    subcommand = words[1:3] if words[1] in {"create", "rollout", "top"} and words[2:] else words[1:2]
    told = _help(program, *subcommand, "--help") + _help(program, "options")
    own = words[: words.index("--")] if "--" in words else words
    named = {each.partition("=")[0] for each in own if re.match(r"--?[a-z]", each)}
    return named - {
        *re.findall(r"^ +(-\w), --", told, re.MULTILINE),
        *re.findall(r"^ .*?(--[\w-]+)=", told, re.MULTILINE),
    }


def test_objects_of_pages_are_accepted(api, crds, namespace):
    """Every YAML block with an object, or with the `spec` of a StreamApp, passes a server-side dry run.

    Those of docs/errors.md are mistakes, which tests/mistakes makes.
    """
    wrong, accepted = [], []
    for page in PAGES:
        if page == "docs/errors.md":
            continue
        for block in blocks(page):
            is_object = block.language == "yaml" or block.text.startswith("apiVersion:")
            if not is_object or block.text.startswith("# values.yaml"):
                continue
            for document in yaml.safe_load_all(block.text):
                given = completed(document)
                kind = given["kind"]
                if kind in _NOT_SERVED:
                    continue
                if kind not in KINDS:
                    wrong.append(f"{page}:{block.line}: no rule covers {kind}: add it to KINDS or to _NOT_SERVED")
                    continue
                placed = {**given, "metadata": {**given["metadata"], "namespace": namespace}}
                try:
                    api.request("POST", path_of(kind, namespace), placed, dryRun="All", fieldValidation="Strict")
                    accepted.append(kind)
                except ApiFailure as failure:
                    wrong.append(f"{page}:{block.line}: {failure}")
    assert not wrong, "\n".join(wrong)
    assert {"StreamApp", "StateBootstrap", "HorizontalPodAutoscaler"} <= set(accepted)
