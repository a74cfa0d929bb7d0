"""GitHub workflows: valid, pinned, for each supported Python. `make lint` checks their rights and pins besides."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

from tests.ci.phases import PHASES

_ROOT = Path(__file__).parents[2]
_WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_are_valid(actionlint: Path) -> None:
    done = subprocess.run([actionlint, *_WORKFLOWS], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_action_is_pinned_by_digest_beside_its_release() -> None:
    used = [
        line
        for path in _WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\buses:", line) and "uses: ./" not in line
    ]
    assert used
    wrong = [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)]
    assert wrong == []


def test_the_tests_run_on_each_supported_python() -> None:
    classifiers = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = [
        match[1] for each in classifiers if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
    ]
    ci, nightly = (
        yaml.safe_load((_ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))["jobs"]
        for name in ("ci.yml", "nightly.yml")
    )
    assert ci["test"]["strategy"]["matrix"]["python"] == supported
    assert sorted(nightly["nightly"]["with"]["python"].split()) == sorted(supported)


def test_each_phase_has_a_job_and_each_job_a_target_of_make() -> None:
    targets = [
        job["with"]["target"]
        for name in ("ci.yml", "nightly.yml")
        for job in yaml.safe_load((_ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))["jobs"].values()
    ]
    assert targets[:-1] == [f"ci PHASE={phase.name}" for phase in PHASES]
    made = re.findall(r"^([a-z0-9-]+):", (_ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {target.split()[0] for target in targets} <= set(made)
