"""`millpond new`: names, directories, and the files of a project. tests/installing/test_user_project.py runs one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from millpond import __version__
from millpond.cli.new.project import FILES, NAME, REQUIRED, proposed_name
from tests.cli.conftest import Millpond

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "worker" / "millpond" / "cli" / "new" / "template"


def test_a_project_has_all_files_with_its_name(millpond: Millpond) -> None:
    """No token of a template is left, and the next commands are shown."""
    ended = millpond("new", "card-payments")
    assert (ended.status, ended.err) == (0, "")
    assert "cd card-payments" in ended.out
    assert "put its wheel into card-payments/wheels first." in ended.out
    project = Path("card-payments")
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == FILES.keys()
    for path in FILES:
        assert not re.search(r"@[A-Z]+@", (project / path).read_text()), path
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "card-payments"
    assert tomllib.loads((project / "millpond.toml").read_text())["application"]["id"] == "card-payments"


def test_a_second_module_needs_no_edit(millpond: Millpond) -> None:
    """The image takes all modules beside `app.py`, and mypy checks them."""
    assert millpond("new", "orders").status == 0
    project = Path("orders")
    assert "COPY *.py millpond.toml" in (project / "Dockerfile").read_text()
    assert "!*.py" in (project / ".dockerignore").read_text().splitlines()
    (project / "prices.py").write_text("price: int = ''\n")
    files = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert {path.name for pattern in files for path in project.glob(pattern)} == {"app.py", "prices.py", "tests"}


def test_a_project_can_have_any_directory(millpond: Millpond) -> None:
    """`--directory` names it; directories above it are made."""
    ended = millpond("new", "orders", "--directory", "streams/first")
    assert ended.status == 0
    assert "cd streams/first" in ended.out
    assert "orders" in Path("streams/first/streamapp.yaml").read_text()


def test_the_wheel_at_hand_goes_into_the_project(millpond: Millpond) -> None:
    """Pip, uv, the image and CI find it at one place."""
    Path("dist").mkdir()
    wheel = f"millpond-{__version__}-py3-none-any.whl"
    (Path("dist") / wheel).write_bytes(b"wheel")
    ended = millpond("new", "orders", "--find-links", "dist")
    assert (ended.status, "put its wheel" in ended.out) == (0, False)
    project = Path("orders")
    assert (project / "wheels" / wheel).read_bytes() == b"wheel"
    assert "!wheels" in (project / ".dockerignore").read_text().splitlines()
    assert "COPY wheels/ /tmp/wheels/" in (project / "Dockerfile").read_text()
    assert "--find-links /tmp/wheels" in (project / "Dockerfile").read_text()
    assert tomllib.loads((project / "pyproject.toml").read_text())["tool"]["uv"]["find-links"] == ["wheels"]
    for line in ("ci.yaml", "README.md", "next"):
        text = ended.out if line == "next" else (TEMPLATES / f"{line}.template").read_text()
        assert "pip install --find-links wheels -e '.[dev]'" in text, line


def test_a_directory_without_the_wheel_is_one_sentence(millpond: Millpond) -> None:
    """Nothing is written."""
    ended = millpond("new", "orders", "--find-links", "dist")
    assert ended.status == 1
    assert ended.err.startswith(f"millpond: dist has no wheel of millpond {__version__}: name the directory with it")
    assert not list(Path().iterdir())


def test_what_the_image_copies_is_not_ignored(millpond: Millpond) -> None:
    """Docker's context has all that the Dockerfile names."""
    millpond("new", "orders")
    project = Path("orders")
    lines = (project / "Dockerfile").read_text().splitlines()
    copied = {each for line in lines if line.startswith("COPY ") for each in line.split()[1:-1]}
    ignore = (project / ".dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    assert {each.rstrip("/") for each in copied} == {line.removeprefix("!") for line in ignore[1:]}
    assert all(list(project.glob(each.rstrip("/"))) for each in copied)


def test_every_setting_is_explained(millpond: Millpond) -> None:
    """A comment stands above each line, and the application waits for the topic that it joins."""
    millpond("new", "orders")
    lines = Path("orders/millpond.toml").read_text().splitlines()
    settings = [number for number, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    assert all(lines[number - 1].startswith("#") for number in settings)
    assert tomllib.loads("\n".join(lines))["max"]["task"]["idle"]["ms"] == "1s"


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_an_existing_directory_is_left_as_it_is(millpond: Millpond, kind: str) -> None:
    """One sentence has the cause and the cure, and nothing is written."""
    if kind == "file":
        Path("orders").write_text("mine")
    else:
        Path("orders").mkdir()
    ended = millpond("new", "orders")
    assert ended.status == 1
    assert ended.err == (
        "millpond: orders exists, and `millpond new` changes no files of others: "
        "name a new directory with --directory.\n"
    )
    assert [str(path) for path in Path().rglob("*")] == ["orders"]


def test_an_unwritable_directory_is_one_sentence(millpond: Millpond) -> None:
    Path("file").touch()
    ended = millpond("new", "orders", "--directory", "file/orders")
    assert (ended.status, ended.err) == (1, "millpond: file/orders cannot be written: Not a directory.\n")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Card_Payments", ", such as 'card-payments'."),
        ("2nd", ", such as 'nd'."),
        ("orders-", ", such as 'orders'."),
        ("café", ", such as 'cafe'."),
        ("a" * 53, f", such as '{'a' * 52}'."),
        ("../orders", ", such as 'orders'."),
        ("42", "ending with '-'."),
        ("", "ending with '-'."),
    ],
)
def test_a_name_that_no_streamapp_can_have_is_refused(millpond: Millpond, name: str, hint: str) -> None:
    ended = millpond("new", name)
    assert ended.status == 2
    assert ended.err.startswith(f"millpond: '{name}' cannot be the name of a StreamApp: choose at most 52 lower-case ")
    assert ended.err.splitlines()[0].endswith(hint)
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", REQUIRED)
def test_a_project_cannot_be_called_like_its_dependencies(millpond: Millpond, name: str) -> None:
    """Pip would take the project for the package."""
    ended = millpond("new", name)
    assert (ended.status, ended.err.splitlines()[0]) == (
        2, f"millpond: the project would depend on the package '{name}': choose another name than that."
    )  # fmt: skip
    dependencies = (TEMPLATES / "pyproject.toml.template").read_text()
    assert re.search(rf'"{name}\W', dependencies)


def test_the_rule_of_names_is_that_of_the_definition() -> None:
    """The pattern and the length are those in crds/streamapps.yaml."""
    schema = yaml.safe_load((ROOT / "crds" / "streamapps.yaml").read_text())["spec"]["versions"][0]["schema"]
    [rule] = schema["openAPIV3Schema"]["x-kubernetes-validations"]
    found = re.fullmatch(
        r"self\.metadata\.name\.matches\('(.*)'\) && size\(self\.metadata\.name\) <= (\d+)", rule["rule"]
    )
    assert found is not None
    for name in ("a", "a-b", "a--b", "a" * 52, "a" * 53, "-a", "a-", "1a", "a1", "A", "a.b", "a_b", "", "aé"):
        allowed = re.fullmatch(found[1], name) is not None and len(name) <= int(found[2])
        assert (NAME.fullmatch(name) is not None) == allowed, name
        near = proposed_name(name)
        assert near is None or NAME.fullmatch(near)


def test_yaml_reads_every_name_as_text(millpond: Millpond) -> None:
    """YAML has words that are no text without quotes."""
    millpond("new", "null")
    app = yaml.safe_load(Path("null/streamapp.yaml").read_text())
    assert (app["metadata"]["name"], app["spec"]["applicationId"]) == ("null", "null")


def test_every_template_is_used() -> None:
    assert {path.name for path in TEMPLATES.iterdir()} == {f"{each}.template" for each in FILES.values()}
