"""The order of tests on a machine that lacks what some of them need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = 3
"""The number of tests below that need nothing."""
WAITS = """#!/bin/sh
for _ in $(seq 1000); do [ ! -e "$0.end" ] || exit 1; sleep 0.2; done
exit 1
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_tests_that_can_run_come_first_while_others_wait_for_a_build(tmp_path, processes):
    """The terminal tells what is built and how many tests wait for it; if that fails, how many were left out."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(WAITS)
    go.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{go.parent}{os.pathsep}{os.environ['PATH']}",
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "MILLPOND_CACHE": str(tmp_path / "cache"),
        "KIND_HOME": str(tmp_path / "kind"),
    }
    for name in ("MILLPOND_KUBE_BIN", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    tests = ["tests/crds/test_definitions.py", "-k", "are_small or are_structural"]
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", *tests]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            told = any("wait for apiserver: Building etcd with" in each for each in lines)
            if told and sum("PASSED" in each for each in lines) == PLAIN:
                go.with_name("go.end").touch()
    assert sum("PASSED" in each for each in lines) == PLAIN
    (left_out,) = (line for line in lines if "tests: There is no etcd" in line)
    assert left_out.split()[0] == str(sum("SKIPPED" in each for each in lines))


def test_path_that_does_not_exist_is_told(processes):
    """The processes of pytest collect nothing then."""
    command = [sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadgroup", "tests/support/missing.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: no process collected tests from tests/support/missing.py" in run.stdout + run.stderr
    assert "INTERNALERROR" not in run.stdout + run.stderr
