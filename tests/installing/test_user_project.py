"""A user's project: made by `millpond new`, installed from the wheel, typed, tested, and run on a real broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path

import pytest
import yaml

from release.packages import packages
from release.sources import Sources, working_tree
from tests.conftest import CreateTopic
from tests.demo.commands import blocks
from tests.installing.environments import PRESENT, ROOT, SUPPORTED, Environment, find_python
from tests.support import kafka
from tests.support.broker import Broker

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("user-project")]

ROOTS = ("worker/millpond", "operator/millpond_operator", "spark/millpond_spark")

TYPED = """\
from typing import assert_type

import millpond as mp

builder = mp.StreamsBuilder()
words = builder.stream("words", key=mp.String, value=mp.Long)
assert_type(words, mp.KStream[str, int])
assert_type(words.group_by_key().count(), mp.KTable[str, int])
words.map_values(len)  # wrong: len of an int
"""
WRONG_LINE = 9


@dataclass(frozen=True)
class Dist:
    """What `make dist` makes, and of which sources."""

    sources: Sources
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Dist:
    """The wheel and the sdist of this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    sources = working_tree(directory / "sources")
    wheel, sdist = packages(sources, directory / "dist")
    return Dist(sources, wheel, sdist)


@dataclass(frozen=True)
class Project:
    """A project of `millpond new`, and its environment."""

    directory: Path
    environment: Environment


@pytest.fixture(
    scope="module",
    params=[PRESENT, *(pytest.param(each, marks=pytest.mark.soak) for each in SUPPORTED if each != PRESENT)],
)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dist: Dist) -> Project:
    """A project that is installed as its README says, for each supported Python; `make test` has the present one."""
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"there is no Python {request.param} on PATH or below $PYENV_ROOT/versions")
    home = tmp_path_factory.mktemp("user")
    new = [sys.executable, "-m", "millpond.cli", "new", "shop", "--find-links", dist.wheel.parent]
    subprocess.run(new, cwd=home, check=True, capture_output=True)
    environment = Environment(home / "shop" / ".venv", python)
    environment.install(
        "--find-links", "wheels", "--constraint", ROOT / "requirements.lock", "-e", ".[dev]", where=home / "shop"
    )
    return Project(home / "shop", environment)


def test_the_wheel_has_the_packages_and_nothing_else(dist: Dist) -> None:
    """Every file of the three packages is in it, with `py.typed` of each, and no test."""
    committed = {
        str(path.relative_to((dist.sources.directory / root).parent))
        for root in ROOTS
        for path in (dist.sources.directory / root).rglob("*")
        if path.is_file()
    }
    with zipfile.ZipFile(dist.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == committed
    assert {f"{Path(root).name}/py.typed" for root in ROOTS} <= names


def test_the_sdist_has_what_the_wheel_is_made_of(dist: Dist) -> None:
    """The same files, and those that build them."""
    with zipfile.ZipFile(dist.wheel) as wheel, tarfile.open(dist.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names
        for image in ("worker", "operator", "spark"):
            lines = (ROOT / image / "Dockerfile").read_text().splitlines()
            copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
            needed = {f"{image}/Dockerfile", ".dockerignore", *(each for some in copied for each in some)}
            assert not {each for each in needed if each.removesuffix("/") not in names}, image
        assert not {name for name in names if name.startswith("tests")}
        root = dist.sdist.name.removesuffix(".tar.gz")
        for place in ROOTS:
            folder, _, package = place.partition("/")
            for name in (each for each in wheel.namelist() if each.startswith(f"{package}/")):
                member = sdist.extractfile(f"{root}/{folder}/{name}")
                assert member is not None
                assert member.read() == wheel.read(name), name


@pytest.mark.soak
def test_the_sdist_gives_the_same_wheel(dist: Dist, tmp_path: Path) -> None:
    with tarfile.open(dist.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    unpacked = tmp_path / dist.sdist.name.removesuffix(".tar.gz")
    again, _ = packages(Sources(unpacked, dist.sources.commit, dist.sources.epoch), tmp_path / "again")
    assert again.read_bytes() == dist.wheel.read_bytes()


def test_the_metadata_says_what_is_supported(dist: Dist) -> None:
    """The oldest Python of the classifiers is the oldest that pip accepts; every extra has requirements."""
    with zipfile.ZipFile(dist.wheel) as wheel:
        [name] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = BytesParser().parsebytes(wheel.read(name))
    assert metadata["Requires-Python"] == f">={SUPPORTED[0]}"
    required = metadata.get_all("Requires-Dist", [])
    for extra in metadata.get_all("Provides-Extra", []):
        assert [each for each in required if f'extra == "{extra}"' in each], extra


def test_what_ci_runs_passes(project: Project) -> None:
    """All steps of the project's CI file after the installation: tests, mypy, the check of settings and StreamApp."""
    steps = yaml.safe_load((project.directory / ".github/workflows/ci.yaml").read_text())["jobs"]["check"]["steps"]
    lines = [step["run"] for step in steps if "run" in step]
    assert lines[0] == "pip install --find-links wheels -e '.[dev]'"
    said = [project.environment.shell(line, project.directory) for line in lines[1:]]
    assert "1 passed" in said[0]
    assert "no issues found" in said[1]
    assert said[2].splitlines() == [
        "streamapp.yaml:8: app:build: a worker can start with millpond.toml",
        "streamapp.yaml: StreamApp shop is valid",
    ]


def test_the_installed_command_makes_the_same_project(project: Project, tmp_path: Path) -> None:
    """The wheel has the templates."""
    assert "Commands:" in project.environment.run("millpond", "--help", where=tmp_path)
    project.environment.run("millpond", "new", "shop", where=tmp_path)
    for path in (tmp_path / "shop").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (project.directory / path.relative_to(tmp_path / "shop")).read_bytes()
    assert "Topologies:" in project.environment.run("millpond", "topology", "app:build", where=tmp_path / "shop")


def test_mypy_and_pyright_see_the_types_of_the_wheel(project: Project) -> None:
    """In the project, with strict settings: exact types, and one error for one wrong use."""
    # The cache that mypy made for the CI file's step is of use again.
    assert mypy_errors(project.environment.python, project.directory) == {WRONG_LINE}
    assert pyright_errors(project.environment.python, project.directory) == {WRONG_LINE}


def test_an_editable_install_has_types(dist: Dist, tmp_path: Path, soak: bool) -> None:
    """`pip install -e` puts folders on the path, and no import hook, which type checkers do not see."""
    build = "from setuptools import build_meta; import sys; build_meta.build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=dist.sources.directory, check=True, capture_output=True
    )
    [built] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as wheel:
        assert [name for name in wheel.namelist() if ".dist-info/" not in name] == ["__editable__.millpond.pth"]
        paths = wheel.read("__editable__.millpond.pth").decode().splitlines()
    assert paths == [str((dist.sources.directory / root).parent) for root in ROOTS]
    if soak:
        environment = Environment(tmp_path / "environment", Path(sys.executable))
        environment.install("--no-deps", built)
        assert mypy_errors(environment.python, tmp_path) == {WRONG_LINE}
        assert pyright_errors(environment.python, tmp_path) == {WRONG_LINE}


def test_the_first_page_of_the_documentation_needs_the_wheel_alone(project: Project, tmp_path: Path) -> None:
    """Its application and its test run in a directory that has nothing else; tests/demo runs its other commands."""
    for language, text in blocks("docs/getting-started.md"):
        if language == "python":
            name, _, code = text.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(code)
    assert "1 passed" in project.environment.run("python", "-m", "pytest", "test_views.py", where=tmp_path)
    assert "a worker can start" in project.environment.run("millpond", "check", "views:views", where=tmp_path)


@pytest.fixture
def topics(project: Project, create_topic: CreateTopic) -> Iterator[dict[str, str]]:
    """The application with topics that no other test has, by the names in its code."""
    code = (project.directory / "app.py").read_text()
    topics = {name: create_topic(name) for name in ("accounts", "payments", "revenue-per-minute")}
    changed = code
    for name, topic in topics.items():
        changed = changed.replace(f'("{name}"', f'("{topic}"')
    (project.directory / "app.py").write_text(changed)
    yield topics
    (project.directory / "app.py").write_text(code)


def test_the_application_runs_on_a_broker(
    project: Project, topics: dict[str, str], broker: Broker, app_id: str, tmp_path: Path
) -> None:
    """The commands of the project's README write an account and a payment, run the application, and read the result."""
    environment = project.environment
    produced, consumed = [], ""
    for line in (line for text in sh_blocks(project.directory / "README.md") for line in text.splitlines()):
        known = line.replace("accounts", topics["accounts"]).replace("payments", topics["payments"])
        if "millpond produce" in line:
            produced.append(known)
        elif "millpond consume" in line:
            consumed = line.replace("revenue-per-minute", topics["revenue-per-minute"])
    running = {
        "MILLPOND_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "MILLPOND_APPLICATION_ID": app_id,
        "MILLPOND_STATE_DIR": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    # Both are in Kafka when the application starts, so the account comes first, by its timestamp.
    for line in produced:
        assert "1 record written" in environment.shell(line, project.directory, **running)
    assert len(produced) == 2
    log = tmp_path / "dev"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [environment.directory / "bin" / "millpond", "dev", "app:build"],
            cwd=project.directory, env={**environment.variables, **running}, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        kafka.read_until(broker.bootstrap_servers, topics["revenue-per-minute"], 1)
        said = environment.shell(consumed, project.directory, **running)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    [record] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert record["key"] == "NZ"
    assert (record["value"]["payments"], record["value"]["cents"]) == (1, 500)


def test_the_projects_readme_has_only_commands_that_are_tested(project: Project) -> None:
    """The commands of its README are run by the tests above, or are those of other programs."""
    lines = [line for text in sh_blocks(project.directory / "README.md") for line in text.splitlines()]
    run = ("pip install --find-links wheels -e '.[dev]'", "pytest", "mypy", "millpond check", "millpond dev app:build")
    others = ("python -m venv .venv", "source .venv/bin/activate", "docker ", "kubectl apply -f streamapp.yaml")
    known = (*run, *others, "echo ", "millpond consume ", "millpond run app:build --bootstrap-servers localhost:9092")
    assert [line for line in lines if not line.startswith(known)] == []
    assert [start for start in known if not any(line.startswith(start) for line in lines)] == []


def sh_blocks(page: Path) -> list[str]:
    """Return the `sh` blocks of a page."""
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def mypy_errors(python: Path, directory: Path) -> set[int]:
    """Return the lines in which mypy finds errors, with an environment's packages."""
    (directory / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "typed.py"],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}


def pyright_errors(python: Path, directory: Path) -> set[int]:
    """Return the lines in which pyright finds errors, with an environment's packages."""
    (directory / "typed.py").write_text(TYPED)
    (directory / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "include": ["typed.py"]}')
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", str(python)],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout[done.stdout.index("{") :])["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
