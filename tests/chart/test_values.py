"""Each value has a description and an effect, and a name that does not exist is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from helm.generate import CHART, described_values
from millpond.durations import Duration
from millpond_operator.controllers.settings import Settings
from tests.chart.leaf_values import CONTEXTS, FIXED, leaves, other_value
from tests.chart.rendering import Refused, Rendering, merged, with_value

LEAVES = dict(leaves())
WITHOUT_DEFINITIONS = {"crds": {"install": False}}
"""The definitions are most of what is rendered, and only few values concern them."""


@pytest.fixture(scope="session")
def with_files(rendering, helm, tmp_path_factory) -> Rendering:
    """The chart with a rule and a dashboard, whatever there are."""
    chart = tmp_path_factory.mktemp("chart") / "millpond"
    shutil.copytree(CHART, chart)
    for folder in ("rules", "dashboards"):
        (chart / "files" / folder).mkdir(exist_ok=True)
    (chart / "files" / "rules" / "a.yaml").write_text(
        'groups:\n- name: a\n  rules:\n  - {alert: Down, expr: up == 0, annotations: {summary: "{{ $labels.pod }}", '
        'runbook_url: "https://millpond.dev/docs/runbooks/Down"}}\n'
    )
    (chart / "files" / "dashboards" / "a.json").write_text('{"title": "{{pod}}"}\n')
    return Rendering(rendering.program, chart)


@pytest.fixture(scope="session")
def baselines(with_files):
    """What is rendered with some values, each rendered once."""
    known: dict[str, str] = {}

    def rendered(values) -> str:
        key = json.dumps(values, sort_keys=True)
        if key not in known:
            known[key] = with_files.text(values)
        return known[key]

    return rendered


def context_of(path: str) -> dict:
    parts = path.split(".")
    found = [CONTEXTS[prefix] for end in range(1, len(parts) + 1) if (prefix := ".".join(parts[:end])) in CONTEXTS]
    return merged({} if path.startswith("crds") else WITHOUT_DEFINITIONS, *found)


@pytest.mark.share(30)
@pytest.mark.parametrize("path", [each for each in LEAVES if each not in FIXED])
def test_each_value_changes_what_is_rendered(path, baselines, with_files):
    """No value is without effect."""
    context = context_of(path)
    changed = with_files.text(merged(context, with_value(path, other_value(path, LEAVES[path]))))
    assert changed != baselines(context)


@pytest.mark.parametrize("path", FIXED)
def test_values_that_pod_security_needs_cannot_be_changed(path, rendering):
    """The schema names the value."""
    other = [] if isinstance(LEAVES[path], list) else not LEAVES[path]
    with pytest.raises(Refused, match=path.replace(".", "/")):
        rendering.text(with_value(path, other))


def test_every_leaf_is_described():
    """README.md has a row for each value."""
    described = {path for path, _, _ in described_values()}
    assert {each for each in LEAVES if each not in described} == set()


def test_other_values_are_of_leaves_that_exist():
    """A value that is renamed is renamed in the test."""
    from tests.chart.leaf_values import OTHERS

    nested = {"networkPolicy.scrape.namespaceLabels.millpond.dev/http-access"}
    assert {*OTHERS, *FIXED} - LEAVES.keys() - nested == set()
    assert {each for each in CONTEXTS if not any(f"{leaf}.".startswith(f"{each}.") for leaf in LEAVES)} == set()


def objects_of(schema: dict, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path] if schema.get("additionalProperties") is False else []
    for name, each in schema.get("properties", {}).items():
        found += objects_of(each, (*path, name))
    return found


def test_every_misspelled_value_is_refused_with_its_name(each_rendering):
    """One unknown name in each map of the values, each of them reported."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    paths = [path for path in objects_of(schema) if path[:1] != ("affinity",)]
    assert len(paths) > 25
    wrong = merged(*(with_value(".".join((*path, f"misspelled{number}")), 1) for number, path in enumerate(paths)))
    with pytest.raises(Refused) as refused:
        each_rendering.text(wrong)
    text = str(refused.value)
    assert [path for number, path in enumerate(paths) if f"'misspelled{number}'" not in text] == []


def test_the_schema_is_strict_everywhere():
    """Every map either has a list of names, or is one of labels, annotations or amounts."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def loose(each, path=""):
        if isinstance(each, dict):
            if each.get("type") == "object" and "additionalProperties" not in each:
                yield path
            for key, value in each.items():
                yield from loose(value, f"{path}/{key}")
        elif isinstance(each, list):
            for value in each:
                yield from loose(value, path)

    assert list(loose(schema)) == ["/properties/global"]


def test_defaults_are_those_of_the_operator():
    """Values that equal the operator's defaults are not passed on, so both have to agree."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["operator"]
    for each in yaml.safe_load((CHART / "files" / "operator-settings.yaml").read_text()):
        value = values
        for part in each["value"].split("."):
            value = value[part]
        assert (value or "") == each["default"], each
        name = each["setting"].lower()
        if not hasattr(Settings, name):
            continue
        default = getattr(Settings, name)
        if isinstance(default, timedelta):
            assert Duration.parse(each["default"]) == default, each
        else:
            assert (default or "") == each["default"], each


def test_every_setting_in_use_is_one_of_the_operator(rendering):
    """A setting that the operator does not know would keep it from starting."""
    every = merged(*(with_value(path, other_value(path, default)) for path, default in LEAVES.items()
                     if path.startswith("operator.")))  # fmt: skip
    deployment = rendering.one(
        "Deployment", "other-millpond-operator",
        merged(every, WITHOUT_DEFINITIONS, {"watchNamespaces": ["a"], "rbac": {"clusterRights": False},
                                            "certificates": {"source": "secret", "secretName": "b"}}),
        release="other",
    )  # fmt: skip
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value", "x") for each in container["env"]}
    read = Settings.read({}, environment)
    assert read.watch_namespaces == ("a",)
    assert read.lease_duration == timedelta(seconds=20)
    assert read.lease_name == "another-name"
    assert len(environment) > 20


def test_both_helms_accept_the_chart(helm):
    """`helm lint --strict` has nothing to say."""
    for program in helm.values():
        done = subprocess.run([program, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 chart(s) failed" in done.stdout
        assert "WARNING" not in done.stdout


def test_both_helms_render_the_same(helm):
    """The chart uses nothing in which Helm 3 and Helm 4 differ."""
    first, second = (Rendering(program).objects() for program in helm.values())

    def by_name(objects):
        return sorted(
            objects, key=lambda each: (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        )

    assert by_name(first) == by_name(second)


def test_a_package_has_the_definitions_as_files(helm, tmp_path: Path):
    """`helm package` makes a chart that renders the same."""
    for name, program in helm.items():
        target = tmp_path / name
        subprocess.run([program, "package", CHART, "--destination", target], check=True, capture_output=True)
        (package,) = target.glob("millpond-*.tgz")
        assert Rendering(program, package).text() == Rendering(program).text()
