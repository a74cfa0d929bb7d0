"""compose.yaml names files, flags and images that exist, and the images of the Dockerfiles."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
_COMPOSE = yaml.safe_load((_ROOT / "compose.yaml").read_text())
_SERVICES: dict[str, dict] = _COMPOSE["services"]


def test_every_mounted_or_built_path_exists():
    paths = [volume.split(":")[0] for each in _SERVICES.values() for volume in each.get("volumes", []) if ":" in volume]
    paths += [each["build"]["dockerfile"] for each in _SERVICES.values() if "build" in each]
    missing = [path for path in paths if not (_ROOT / path).exists()]
    assert not missing, f"compose.yaml names paths that do not exist: {missing}"


def test_the_worker_runs_with_flags_that_exist():
    [command] = _SERVICES["worker"]["command"]
    program, verb, *rest = shlex.split(command.removeprefix("exec ").replace("$$HOSTNAME", "host"))
    shown = subprocess.run(
        [sys.executable, "-m", "millpond.cli", verb, "--help"], capture_output=True, text=True, check=True
    ).stdout
    flags = {each for each in rest if each.startswith("--")}
    assert program == "millpond"
    assert flags and all(flag in shown for flag in flags)


def test_the_base_images_are_those_of_the_dockerfiles():
    pinned = set(re.findall(r"^ARG BASE_IMAGE=(\S+)$", (_ROOT / "worker" / "Dockerfile").read_text(), re.MULTILINE))
    named = set(re.findall(r"PYTHON_IMAGE:-([^}]+)", (_ROOT / "compose.yaml").read_text()))
    assert named == pinned


@pytest.mark.parametrize(
    "path", ["worker", "operator", "spark", "e2e/broker", "e2e/objectstore", "examples/flights/compose"]
)
def test_base_images_are_named_by_digest(path):
    text = (_ROOT / path / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE_IMAGE=[^\s@]+:[^\s@]+@sha256:[0-9a-f]{64}$", text, re.MULTILINE), path
