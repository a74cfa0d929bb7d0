"""The README and the first steps are correct: their code is the real code, and every command runs."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import millpond as mp
from tests.chart.rendering import rendered_by_helm
from tests.cluster import binaries
from tests.demo import test_delays
from tests.demo.commands import ROOT, Shell, blocks, commands
from tests.support import broker as support
from tests.support import kafka
from tests.support.broker import free_port
from tests.support.programs import helm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("documentation"),
]  # both use the topics in their texts

README = "README.md"
FIRST_STEPS = "docs/getting-started.md"

Check = Callable[[str], object]


@pytest.fixture
def shells(tmp_path: Path, own_brokers: object) -> Iterator[Callable[..., Shell]]:
    opened: list[Shell] = []

    def make(directory: Path, runtime: str = "run", **replaced: str) -> Shell:
        opened.append(Shell(directory, replaced, tmp_path / "state-home", runtime))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def recipe(command: str) -> str:
    """Return the commands of `make`; the environment counts as up to date, or it would be rebuilt."""
    done = subprocess.run(
        [*command.split(), "--dry-run", "--no-print-directory", "--old-file=.venv/ready"],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )  # fmt: skip
    return done.stdout


def carry_out(document: str, checks: dict[str, Check]) -> None:
    """Check each command of a document in order; a command without a check fails."""
    found = commands(document)
    assert found
    for command in found:
        known = [check for start, check in checks.items() if command == start or command.startswith(f"{start} ")]
        assert known, f"{document} has the command {command!r}, which has no check"
        known[-1](command)


def test_the_readme_shows_the_demo_itself() -> None:
    """Its first example is exactly the application of the demo."""
    first = next(block for block in blocks(README) if block.language == "python")
    assert first.text == (ROOT / "examples" / "flights" / "app.py").read_text()


def test_readme_test_exists_in_the_suite() -> None:
    """The example test is in the suite, except for its docstring."""
    shown = [block.text for block in blocks(README) if block.language == "python"][1]
    source = inspect.getsource(test_delays.test_a_late_flight_within_grace_counts)
    assert shown == "".join(line for line in source.splitlines(keepends=True) if '"""' not in line)


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """Runs kubectl commands on the run's API server; without one, it only checks the files that they name."""
    try:
        binaries.find()
        program = binaries.find([binaries.KUBECTL])[binaries.KUBECTL]
    except binaries.BinariesMissing:
        return _names_what_there_is
    server, namespace = request.getfixturevalue("api_server"), request.getfixturevalue("namespace")
    request.getfixturevalue("crds")
    kubeconfig = server.admin.write_kubeconfig(tmp_path / "kubeconfig")

    def run(command: str) -> None:
        _names_what_there_is(command)
        words = shlex.split(command)[1:]
        # The operator has its own namespace; `make e2e` installs it.
        where = ["--dry-run=client"] if "-k" in words else [f"--namespace={namespace}"]
        words = [word for word in words if not (where[0].startswith("--dry") and word == "--server-side")]
        done = subprocess.run(
            [program, f"--kubeconfig={kubeconfig}", *words, *where],
            cwd=ROOT, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert any(name in done.stdout for name in ("flights", "operator", "streamapps"))

    return run


@pytest.fixture
def helm_install() -> Check:
    """Renders what `helm install` would install; without Helm, it only checks that the chart exists."""

    def check(command: str) -> None:
        words = shlex.split(command)
        assert (ROOT / words[3] / "Chart.yaml").exists()
        with contextlib.suppress(helm.GoProgramMissing):
            rendered_by_helm(helm.find(helm.HELM_4), command)

    return check


def _names_what_there_is(command: str) -> None:
    words = shlex.split(command)
    for flag, path in itertools.pairwise(words):
        assert flag not in {"-f", "-k"} or (ROOT / path).exists()


@pytest.mark.long
def test_every_command_of_the_readme_runs(
    shells: Callable[..., Shell], kubectl: Check, helm_install: Check, tmp_path: Path
) -> None:
    """All commands in order: a broker and a worker, several workers, their metrics, a reset."""
    port, metrics = str(free_port()), str(free_port())
    files = {"delays.svg": str(tmp_path / "delays.svg"), "../shop": str(tmp_path / "shop")}
    files["--find-links dist"] = f"--find-links {tmp_path / 'dist'}"
    shell = shells(ROOT, **{"9092": port, "9404": metrics}, **files)
    # The first session stays for its broker. Others do not find it: `millpond dev status` finds the second one only.
    first = shells(ROOT, runtime="first", **{"9092": port})

    def make_demo(command: str) -> None:
        assert "python examples/flights/demo.py" in recipe(command)  # test_demo.py runs the same
        assert "--kills" in shell.run("python examples/flights/demo.py --help")

    def make_test(command: str) -> None:
        assert "python -m pytest" in recipe(command)
        assert "tests/demo/test_readme.py" in shell.run("python -m pytest --collect-only -q tests/demo/test_readme.py")

    def make_dist(command: str) -> None:
        assert "python -m release.dist" in recipe(command)
        assert "--output" in shell.run("python -m release.dist --help")

    def new(command: str) -> None:
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist" / f"millpond-{mp.__version__}-py3-none-any.whl").touch()
        assert "Next:" in shell.run(command.removeprefix(".venv/bin/"))

    def cd(command: str) -> None:
        # tests/installing/test_user_project.py makes an environment, and installs the project in it.
        assert (tmp_path / "shop" / "pyproject.toml").exists()

    def make_lint(command: str) -> None:
        for line in filter(None, recipe(command).splitlines()):
            assert shutil.which(Path(line.split()[0]).name, path=str(Path(sys.executable).parent)), line

    def make_check(command: str) -> None:
        planned = recipe(command)
        assert "ruff check" in planned
        assert "-m tests.affected" in planned

    def make_nightly(command: str) -> None:
        assert "python -m tests.nightly" in recipe(command)
        assert "--minutes" in shell.run("python -m tests.nightly --help")

    def make_bench(command: str) -> None:
        assert "python -m bench" in recipe(command)
        assert "usage" in shell.run("python -m bench --help").lower()

    def make_docs(command: str) -> None:
        assert "sphinx-build" in recipe(command)
        # The navigation of the theme, on every page, takes half of the time: it is made for one page.
        build = f"python -m sphinx -q -W --keep-going -d {tmp_path}/doctrees docs {tmp_path}/docs"
        shell.run(f"{build} -D html_theme=basic")
        shell.run(f"{build} docs/getting-started.md")
        assert "page views" in (tmp_path / "docs" / "getting-started.html").read_text()

    def make_e2e(command: str) -> None:
        assert "python -m pytest e2e" in recipe(command)
        assert "test_life.py" in shell.run("python -m pytest --collect-only -q e2e")

    def dev(command: str) -> None:
        if "--workers" in command:
            shell.start(command).wait_for("tasks are processed")
        else:
            first.start(command).wait_for("-> running")

    def dev_command(command: str) -> None:
        said = shell.run(command)
        told = {"status": "w2", "scale": "starting w3", "kill": "killed w1", "drain": "draining w2"}
        assert told[command.split()[2]] in said

    def topology(command: str) -> None:
        said = shell.run(command)
        if "--output" in command:
            assert (tmp_path / "delays.svg").read_text().startswith("<svg")
        else:
            assert "Source: KSTREAM-SOURCE-0000000006 (topics: [flights])" in said

    def run(command: str) -> None:
        shell.start(command).wait_for("-> running")

    def curl(command: str) -> None:
        with urllib.request.urlopen(shell.replace(command).split()[1], timeout=60) as answer:
            assert 'millpond_worker_state{application_id="flight-delays",state="running",worker="w0"} 1.0' in (
                answer.read().decode()
            )

    def reset(command: str) -> None:
        assert "dry run" in shell.run(command)
        shell.stop()
        first.stop()

    def settings(command: str) -> None:
        assert "commit.interval.ms" in shell.run(command)

    carry_out(
        README,
        {
            "make demo": make_demo, "make test": make_test, "make test-long": make_test,
            "make check": make_check, "make lint": make_lint,
        "make nightly": make_nightly, "make bench": make_bench,
            "make docs": make_docs, "make e2e": make_e2e, "kubectl": kubectl, "helm install": helm_install,
            "make venv": make_venv,
        "make dist": make_dist, ".venv/bin/millpond new": new, "cd ../shop": cd, "pip install": cd,
        "source .venv/bin/activate": activate,
            "millpond dev": dev, "millpond dev status": dev_command, "millpond dev scale": dev_command,
            "millpond dev kill": dev_command, "millpond dev drain": dev_command, "millpond topology": topology,
        "millpond run": run, "curl": curl,
            "millpond reset": reset, "millpond settings": settings,
        },
    )  # fmt: skip


@pytest.mark.long
def test_readme_first_steps_run_an_application(
    shells: Callable[..., Shell], broker: support.Broker, tmp_path: Path
) -> None:
    """The page's files are saved under their names, and its commands run in order."""
    home = tmp_path / "home"
    home.mkdir()
    port = str(free_port())
    shell = shells(home, **{"9092": port})
    for language, text in blocks(FIRST_STEPS):
        if language == "python":
            name, _, code = text.partition("\n")
            (home / name.removeprefix("# ")).write_text(code)
        elif language == "toml":
            (home / "millpond.toml").write_text(text.replace("localhost:9092", broker.bootstrap_servers))
        elif language == "json":
            (home / "views.jsonl").write_text(text)
    settings = (home / "millpond.toml").rename(home / "later.toml")
    topics = ("views", "views-per-minute")

    def dev(command: str) -> None:
        if "--workers" in command:
            shell.start(command).wait_for("tasks are processed")
            shell.stop()
        else:
            shell.start(command).wait_for("-> running")

    def consume(command: str) -> None:
        shown = shell.start(command)
        shown.wait_for('"key":"/about ')
        shown.wait_for('"value":2')

    def query(command: str) -> None:
        assert "/about" in shell.run(command)
        shell.stop()

    def run(command: str) -> None:
        settings.rename(home / "millpond.toml")
        for topic in topics:
            kafka.create_topic(broker.bootstrap_servers, topic, 4)
        shell.start(command).wait_for("-> running")
        shell.stop()

    def reset(command: str) -> None:
        said = shell.run(command)
        assert ("dry run" if "--dry-run" in command else "is reset") in said

    try:
        carry_out(
            FIRST_STEPS,
            {
                "python3 -m venv": make_environment, "source .venv/bin/activate": activate, "pip install": install,
                "python": shell.run,
                "millpond produce": shell.run, "millpond consume": consume, "millpond query": query,
                "millpond dev": dev, "millpond run": run, "millpond reset": reset,
            },
        )  # fmt: skip
        left = own_topics(broker)
        assert left == {"views-per-minute"}
    finally:
        kafka.delete_topics(broker.bootstrap_servers, {*topics, *own_topics(broker)})


def own_topics(broker: support.Broker) -> set[str]:
    """The topics whose names begin with `views-`, without those that other tests make, with a random number."""
    names = kafka.topic_names(broker.bootstrap_servers, prefix="views-")
    return {each for each in names if not re.fullmatch(r"views-[0-9a-f]{8}", each)}


def make_venv(command: str) -> None:
    """It installs the packages of the lock, and millpond with its command."""
    done = subprocess.run(
        [*command.split(), "--dry-run", "--always-make"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "-m venv .venv" in done.stdout
    assert "--require-hashes -r requirements.lock" in done.stdout
    assert "-e ." in done.stdout


def make_environment(command: str) -> None:
    """The environment is the one that the next command activates."""
    assert command == "python3 -m venv .venv"


def install(command: str) -> None:
    """What is installed is enough: tests/installing/test_user_project.py has an environment with the wheel alone."""
    assert command == "pip install millpond[broker] pytest"


def activate(command: str) -> None:
    """The command activates an environment in `.venv`."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(Path(directory) / ".venv", symlinks=True)
        done = subprocess.run(
            ["bash", "-c", f"{command} && command -v python"], cwd=directory, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == f"{directory}/.venv/bin/python"
