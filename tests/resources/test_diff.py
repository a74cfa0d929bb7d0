from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond_operator.resources import APPLIED, LEADER_EPOCH, content, finish, same
from millpond_operator.resources.diff import amount, digest
from tests.resources.examples import everything, stream_apps

Path = tuple[str | int, ...]

_LISTS_WITH_MORE = {"containers", "env", "ports", "volumes", "volumeMounts", "ownerReferences"}
_EXACT = {"labelSelector", "matchLabels", "namespaceSelector", "nodeSelector", "podSelector", "selector"}
_AMOUNTS = {"requests": "limits"}


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths to all leaves, and to empty objects and lists."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path


def at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def served(object: dict[str, Any]) -> dict[str, Any]:
    """What an API server makes of an applied object: through JSON, with defaults and additions of others."""
    there = json.loads(json.dumps(object))

    def fill(value: Any, field: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                fill(inner, key)
            if field not in _EXACT:
                value["defaultedByTheServer"] = {"some": ["thing"]}
        elif isinstance(value, list):
            for inner in value:
                fill(inner, "")
            if field in {"containers", "env", "volumes", "volumeMounts"}:
                value.insert(0, {"name": "of-another", "mountPath": "/of-another"})

    fill({key: inner for key, inner in there.items() if key not in {"data", "metadata"}}, "")
    there["metadata"] |= {"resourceVersion": "9", "uid": "3", "generation": 1}
    there["metadata"]["labels"]["of-another"] = "x"
    there["metadata"]["annotations"]["of-another"] = "x"
    there["status"] = {"replicas": 1}
    return there


@given(app=stream_apps, data=st.data())
def test_applied_manifest_equals_its_object(app, data):
    """Additions of the API server and of others are no difference."""
    manifest = data.draw(st.sampled_from(everything(app)))
    there = served(finish(manifest, 3))
    assert same(manifest, there)
    assert same(finish(manifest, 3), there)
    assert same(finish(manifest, 8), there), "another leader is no difference"


@given(app=stream_apps, data=st.data())
def test_every_removed_or_changed_leaf_is_noticed(app, data):
    """Any change by others is a difference."""
    manifest = data.draw(st.sampled_from(everything(app)))
    there = served(finish(manifest, 3))
    path = data.draw(st.sampled_from(list(leaves(finish(manifest, 3)))))
    there_path = _in_served(manifest, there, path)
    holder = at(there, there_path[:-1])
    other = copy.deepcopy(there)
    other_holder = at(other, there_path[:-1])
    if path[-1] != LEADER_EPOCH:
        value = holder[there_path[-1]]
        other_holder[there_path[-1]] = _another(value)
        assert not same(manifest, other), f"{path} was {value!r}"
    del holder[there_path[-1]]
    assert not same(manifest, there), path


@given(before=stream_apps, after=stream_apps, data=st.data())
def test_newly_wanted_field_is_noticed(before, after, data):
    """A different manifest is applied even if the object has all of its fields, because another field is no longer
    wanted.
    """
    index = data.draw(st.integers(0, len(everything(before)) - 1))
    old, new = everything(before)[index], everything(after)[index]
    there = served(finish(old, 3))
    there["metadata"]["name"] = new["metadata"]["name"]  # a ControllerRevision has another name then
    assert same(new, there) == (digest(old) == digest(new))


def test_no_longer_wanted_field_is_noticed():
    """A manifest with fewer fields is a difference, although the object has all of them."""
    before = {"metadata": {"name": "a"}, "spec": {"kept": 1, "gone": 2}}
    after = {"metadata": {"name": "a"}, "spec": {"kept": 1}}
    assert not same(after, finish(before, 1))
    assert same(after, finish(after, 1))


def test_object_never_applied_differs():
    """An equal object that others created, or an older operator applied, is applied."""
    manifest = {"metadata": {"name": "a"}, "spec": {"x": 1}}
    assert not same(manifest, copy.deepcopy(manifest))
    assert not same(manifest, {"metadata": {"name": "a", "annotations": {APPLIED: digest(manifest)}}, "spec": {"x": 1}})


def test_finishing_keeps_annotations_and_the_manifest_as_it_was():
    """A user's annotations stay, and the argument is not changed."""
    manifest = {"metadata": {"name": "a", "annotations": {"mine": "1"}}}
    finished = finish(manifest, 12)
    assert manifest == {"metadata": {"name": "a", "annotations": {"mine": "1"}}}
    assert finished["metadata"]["annotations"] == {"mine": "1", APPLIED: digest(manifest), LEADER_EPOCH: "12"}
    assert finish(finished, 12) == finished


@pytest.mark.parametrize(
    ("one", "other"),
    [("1Gi", "1024Mi"), ("0.5", "500m"), (1, "1000m"), ("2e9", "2G"), ("1E3", 1000), ("1E", "1000P"), ("1k", "1000"),
     ("1024Ki", "1Mi"), ("1000u", "1m"), ("1e-3", "1m"), ("0", 0)],
)  # fmt: skip
def test_amounts_are_equal_however_they_are_written(one, other):
    """The API server normalizes quantities."""
    assert amount(one) == amount(other)
    manifest = {"metadata": {"name": "a"}, "spec": {"resources": {"requests": {"memory": one}}}}
    there = finish(manifest, 1)
    there["spec"] = {"resources": {"requests": {"memory": other}}}
    assert same(manifest, there)


@pytest.mark.parametrize(
    ("written", "kept"),
    [("1.23456Gi", "1325598706238m"), ("0.12345", "124m"), ("1n", "1m"), ("1.0001", "1001m"), ("0", "0"),
     ("1E30", "9223372036854775807"), ("1e999999", "9223372036854775807"), ("999E", "999E"),
     ("123456789012345678901234567890", "9223372036854775807")],
)  # fmt: skip
def test_amounts_are_the_same_as_the_api_server_rounds_them(written, kept):
    """It rounds up to thousandths, and has a largest quantity."""
    manifest = {"metadata": {"name": "a"}, "spec": {"resources": {"requests": {"memory": written}}}}
    there = finish(manifest, 1)
    there["spec"] = {"resources": {"requests": {"memory": kept}}}
    assert same(manifest, there)
    there["spec"] = {"resources": {"requests": {"memory": "3001m"}}}
    assert not same(manifest, there)


def test_content_of_an_object_excludes_status_and_writers():
    """It changes with every field that can be wanted, and with nothing else."""
    there = finish({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"y": 1}}, 1)
    later = finish(there, 7) | {"status": {"z": 1}}
    later["metadata"] |= {"resourceVersion": "8", "generation": 2}
    assert content(later) == content(there)
    assert content(there | {"spec": {"y": 2}}) != content(there)
    assert content(there | {"metadata": there["metadata"] | {"labels": {}}}) != content(there)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf", "", "1GB", "Gi", "one", "1 Gi i", "--1"])
def test_invalid_amount_is_refused(text):
    """The message has an example."""
    with pytest.raises(ValueError, match="write a number with a unit, such as 500m, 2, or 20Gi"):
        amount(text)


def test_lists_without_keys_are_compared_as_a_whole():
    """Order and length count where items have no key."""
    manifest = {"metadata": {"name": "a"}, "spec": {"command": ["a", "b"]}}
    there = finish(manifest, 1)
    for other in (["b", "a"], ["a"], ["a", "b", "c"], "ab"):
        assert not same(manifest, there | {"spec": {"command": other}})


@pytest.mark.parametrize("field", sorted(_EXACT))
def test_a_selector_is_compared_as_a_whole(field):
    """With one more key it selects something else."""
    manifest = {"metadata": {"name": "a"}, "spec": {field: {"app": "a"}}}
    there = finish(manifest, 1)
    assert same(manifest, there)
    assert not same(manifest, there | {"spec": {field: {"app": "a", "more": "x"}}})


def test_values_of_different_types_differ():
    """`1` is neither true nor the text 1."""
    manifest = {"metadata": {"name": "a"}, "spec": {"x": 1}}
    there = finish(manifest, 1)
    for other in (True, "1", 1.5, None, {}, []):
        assert not same(manifest, there | {"spec": {"x": other}})


def _in_served(manifest: Any, there: Any, path: Path) -> Path:
    """The same path in the served object, whose lists have one more item at the beginning."""
    found: list[str | int] = []
    inner = there
    for part in path:
        if isinstance(part, int) and isinstance(inner[0], dict) and inner[0].get("name") == "of-another":
            part += 1
        found.append(part)
        inner = inner[part]
    return tuple(found)


def _another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}9"
        case list():
            return ["more"]
        case dict():
            return "something else"
    raise AssertionError(value)
