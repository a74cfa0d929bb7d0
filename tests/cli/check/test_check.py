"""`millpond check`: an application, its settings and its StreamApp, without a broker and without a cluster."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import COUNT, Application, Millpond
from tests.docs.pages import blocks

UNNAMED = COUNT.replace('.count(store="counts")', ".count()")

APP = """\
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: words
spec:
  image: registry.example.com/words:1
  topology: {target}
  kafka:
    bootstrapServers: kafka:9092
  config:
    default.key.serde: String
    max.task.idle.ms: "250"
"""

PAGE = """\
# Of docs/guides/deploying.md
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: orders
spec:
  image: registry.example.com/orders:1
  topology: app:orders
  kafka:
    bootstrapServers: kafka:9092
  replica: 3
"""


@pytest.fixture
def manifest(application: Application) -> str:
    """The StreamApp of an application that needs a serde from its configuration."""
    target = f"{application(COUNT.replace('key=String, value=String)', 'value=String)'))}:count"
    text = APP.format(target=target)
    Path("streamapp.yaml").write_text(text)
    return text


def test_an_application_is_checked_with_the_settings_of_a_run(millpond: Millpond, application: Application) -> None:
    """What a worker would say is said, and the exit status is that of a failure."""
    target = f"{application(COUNT)}:count"
    assert millpond("check", target) == (0, f"{target}: a worker can start\n", "")
    Path("millpond.toml").write_text("commit.intervall = '1s'\n")
    ended = millpond("check", target)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"{target}: setting 'commit.intervall' (in millpond.toml) is unknown; did you mean")
    assert ended.err.endswith("\nmillpond: 1 fault found.\n")


def test_generated_names_are_noted(millpond: Millpond, application: Application) -> None:
    """They are no fault, unless the settings refuse them."""
    target = f"{application(UNNAMED)}:count"
    ended = millpond("check", target)
    assert (ended.status, ended.err) == (0, "")
    assert f"{target}: note: names are generated for changelogs KSTREAM-AGGREGATE-STATE-STORE-000000000" in ended.out
    refused = millpond("check", target, "--set", "ensure.explicit.internal.resource.naming=true")
    assert (refused.status, refused.out) == (1, "")


def test_a_streamapp_is_checked_with_its_application(millpond: Millpond, manifest: str) -> None:
    """Without arguments, `streamapp.yaml` is checked, and its topology has the settings of its workers."""
    ended = millpond("check")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[0].endswith(":count: a worker can start")
    assert ended.out.splitlines()[1] == "streamapp.yaml: StreamApp words is valid"
    Path("streamapp.yaml").write_text(manifest.replace("    default.key.serde: String\n", ""))
    refused = millpond("check")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("streamapp.yaml:7: ")
    assert "stream('words') has no key serde" in refused.err


def test_what_the_streamapp_says_comes_before_the_file(millpond: Millpond, manifest: str) -> None:
    """Each setting of `millpond.toml` that is another one for its workers is noted, and equal ones are not."""
    Path("millpond.toml").write_text(
        'application.id = "words"\nprocessing.guarantee = "at_least_once"\nmax.task.idle = "1s"\n'
    )
    notes = [line for line in millpond("check").out.splitlines() if "note: " in line]
    differing = (("processing.guarantee", "'exactly_once'", "'at_least_once'"), ("max.task.idle.ms", 250, 1000))
    assert notes == [
        f"streamapp.yaml: StreamApp words: note: {key} is {workers} for its workers, and not {file} as in "
        "millpond.toml: what a StreamApp says comes before the file."
        for key, workers, file in differing
    ]


def test_variables_of_the_streamapp_are_there_when_the_application_is_built(
    millpond: Millpond, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code may read them; settings in the environment of the caller have no part in a StreamApp."""
    monkeypatch.setenv("MILLPOND_COMMIT_INTERVAL", "nonsense")
    Path("needing.py").write_text(
        "import os\nimport millpond as mp\n\n\ndef build():\n    builder = mp.StreamsBuilder()\n"
        "    builder.stream(os.environ['IN'], key=mp.String, value=mp.String).to('out')\n    return builder.build()\n"
    )
    changed = "\n".join("  topology: needing:build" if "topology" in each else each for each in manifest.split("\n"))
    Path("streamapp.yaml").write_text(f"{changed}  env:\n    - {{name: IN, value: words}}\n")
    assert millpond("check").status == 0


def test_an_application_with_a_schema_registry_is_checked_without_one(
    millpond: Millpond, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable that is enough, which the CI file of `millpond new` sets."""
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    name = f"registered_{uuid.uuid4().hex[:6]}"
    Path(f"{name}.py").write_text(
        "import millpond as mp\nfrom millpond.serdes.registry import Avro, SchemaRegistry\n\n\n"
        "class Order(mp.Struct):\n    item: str\n\n\n"
        "def build():\n    builder = mp.StreamsBuilder()\n    orders = Avro(Order, registry=SchemaRegistry())\n"
        "    builder.stream('words', key=mp.String, value=orders).to('out', key=mp.String, value=orders)\n"
        "    return builder.build()\n"
    )
    lines = [f"  topology: {name}:build" if "topology" in each else each for each in manifest.splitlines()]
    Path("streamapp.yaml").write_text("\n".join(lines))
    ended = millpond("check")
    assert (ended.status, "SCHEMA_REGISTRY_URL=mock://check is enough" in ended.err) == (1, True)
    ended = millpond("topology", f"{name}:build")
    assert (ended.status, "SCHEMA_REGISTRY_URL=mock://check is enough" in ended.err) == (2, True)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "mock://check")
    for arguments in (("check",), ("check", f"{name}:build"), ("topology", f"{name}:build")):
        ended = millpond(*arguments)
        assert ended.status == 0, ended.err
    monkeypatch.delenv("SCHEMA_REGISTRY_URL")
    address = "http://127.0.0.1:1"  # nothing is connected to
    Path("streamapp.yaml").write_text("\n".join([*lines, f"    schema.registry.url: {address}"]))
    assert millpond("check").status == 0
    assert millpond("check", f"{name}:build").status == 1
    assert millpond("check", "--set", f"schema.registry.url={address}", f"{name}:build").status == 0
    Path("millpond.toml").write_text(f"schema.registry.url = '{address}'\n")
    assert millpond("check", f"{name}:build").status == 0


def test_a_topology_that_is_elsewhere_is_noted(millpond: Millpond, manifest: str) -> None:
    """Manifests may be in a repository of their own."""
    name = f"missing_{uuid.uuid4().hex[:6]}"
    lines = [f"  topology: {name}:build" if "topology" in each else each for each in manifest.splitlines()]
    Path("streamapp.yaml").write_text("\n".join(lines))
    ended = millpond("check", "streamapp.yaml")
    assert ended.status == 0
    assert f"streamapp.yaml:7: note: {name}:build was not checked, since its module is not in" in ended.out
    # Its settings are, although the API server accepts any text.
    Path("streamapp.yaml").write_text("\n".join(lines).replace("max.task.idle.ms", "max.task.idel.ms"))
    refused = millpond("check", "streamapp.yaml")
    assert refused.status == 1
    assert refused.err.startswith(
        "streamapp.yaml:12: setting 'max.task.idel.ms' (in spec.config) is unknown; did you mean 'max.task.idle.ms'?\n"
    )


def test_the_manifest_of_the_demo_is_valid(millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its application, which is beside it."""
    monkeypatch.chdir(Path(__file__).parents[3] / "examples" / "flights")
    monkeypatch.delitem(sys.modules, "app", raising=False)
    ended = millpond("check")
    sys.modules.pop("app", None)  # other applications are called so, too
    assert (ended.status, ended.err, "StreamApp flights is valid" in ended.out) == (0, "", True)


def test_faults_of_manifests_have_their_lines(millpond: Millpond, manifest: str) -> None:
    """All are shown, with the file as an editor opens it, and an application beside them is checked all the same."""
    Path("streamapp.yaml").write_text(manifest.replace("  image:", "  imgae:") + "  replicas: '2'\n")
    ended = millpond("check", "streamapp.yaml", "nowhere:build")
    assert ended.status == 1
    assert ended.err.splitlines() == [
        "streamapp.yaml:5: spec.image: Required value.",
        "streamapp.yaml:6: unknown field \"spec.imgae\"; did you mean 'image'?",
        'streamapp.yaml:13: spec.replicas in body must be of type integer: "string".',
        f"nowhere:build: module 'nowhere' does not exist in {Path.cwd()} or on Python's path.",
        "millpond: 4 faults found.",
    ]


def test_nothing_to_check_is_one_sentence(millpond: Millpond) -> None:
    ended = millpond("check")
    assert (ended.status, ended.err.splitlines()[0]) == (
        2,
        "millpond: there is no streamapp.yaml here: name what to check, an application as in app:build, or a "
        "manifest.",
    )  # fmt: skip
    assert millpond("check", "none.yaml").err == "millpond: none.yaml cannot be read: No such file or directory.\n"


def test_the_library_that_is_missing_is_named(
    millpond: Millpond, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra `check` has both; without cel-python, the rules that are left out are counted."""
    monkeypatch.setattr("millpond_operator.manifests.checking.evaluates_rules", lambda: False)
    ended = millpond("check")
    assert ended.status == 0
    assert "validation rules were not evaluated, since cel-python is not installed: pip install 'millpond[check]'" in (
        ended.out
    )


def test_a_session_tells_it_before_its_broker_starts(
    millpond: Millpond, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker takes seconds to start, and longer the first time."""

    def no_broker(*_given: object, **_named: object) -> None:
        pytest.fail("a broker was started")

    monkeypatch.setattr("millpond.broker.quick.quick_broker", no_broker)
    target = f"{application(COUNT.replace('key=String, value=String)', 'value=String)'))}:count"
    ended = millpond("dev", target)
    assert (ended.status, "has no key serde" in ended.err) == (1, True)


def test_the_page_shows_what_is_said(millpond: Millpond) -> None:
    """docs/guides/deploying.md: a field with a typo, and then a step without a serde."""
    pages = [each.text for each in blocks("docs/guides/deploying.md") if each.language == "text"]
    stream = "import millpond as mp\n\norders = mp.StreamsBuilder()\norders.stream('orders', key=mp.String)"
    Path("app.py").write_text(f"{stream}.to('copies', key=mp.String, value=mp.String)\n")
    said = []
    for text in (PAGE, PAGE.replace("  replica: 3\n", "")):
        Path("streamapp.yaml").write_text(text)
        said.append(millpond("check", "streamapp.yaml").err)
    assert said == pages
