"""Additions of others are distinguished from wanted fields, defaults, and fields that the operator applied."""

from __future__ import annotations

import copy

import pytest

from millpond_operator.resources import additions, foreign_managers, pod_template, revision_of
from millpond_operator.resources import stateful_set as made
from tests.cluster.memory.field_management.patching import json_patched
from tests.resources.examples import SURROUNDINGS, stream_app

APP = stream_app(kafka={"bootstrapServers": "kafka:9092", "credentialsSecret": "login"})
TEMPLATE = pod_template(APP, SURROUNDINGS)
MANIFEST = made(APP, TEMPLATE, revision_of(TEMPLATE), 2)
CONTAINER = 'k:{"name":"worker"}'
SPEC = "f:template", "f:spec"


def entry(*path, manager="kubectl-set", operation="Update", **more):
    """An entry of `managedFields` that owns the field at a path."""
    fields = {}
    for element in reversed(("f:spec", *path)):
        fields = {element: fields}
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


def there(*entries):
    """The StatefulSet, in which others own a field."""
    found = copy.deepcopy(MANIFEST)
    found["metadata"]["managedFields"] = list(entries)
    found["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    return found


def worker(found):
    return found["spec"]["template"]["spec"]["containers"][0]


def undone(found):
    """The object after the patch."""
    return json_patched(found, list(additions(MANIFEST, found).patch))


def clean():
    return there()["spec"]


def test_defaults_and_what_is_wanted_are_no_additions():
    """A default has no owner, and owning a wanted field adds nothing."""
    assert additions(MANIFEST, there()) is None
    assert additions(MANIFEST, there(entry("f:replicas"), entry(*SPEC, "f:containers", CONTAINER, "f:image"))) is None


def test_an_added_variable_is_named_and_taken_out():
    """Its name, path and owner are reported; the other variables stay."""
    found = there(entry(*SPEC, "f:containers", CONTAINER, "f:env", 'k:{"name":"DEBUG"}'))
    worker(found)["env"].insert(1, {"name": "DEBUG", "value": "1"})
    told = additions(MANIFEST, found)
    assert told.fields == ("spec.template.spec.containers[worker].env[DEBUG]",)
    assert told.managers == ("kubectl-set",)
    assert undone(found)["spec"] == clean()


@pytest.mark.parametrize(
    ("path", "add"),
    [
        ((*SPEC, "f:hostNetwork"), lambda spec: spec["template"]["spec"].update(hostNetwork=True)),
        (("f:minReadySeconds",), lambda spec: spec.update(minReadySeconds=7)),
        ((*SPEC, "f:nodeSelector"), lambda spec: spec["template"]["spec"].update(nodeSelector={"disk": "fast"})),
        (
            (*SPEC, "f:containers", 'k:{"name":"spy"}'),
            lambda spec: spec["template"]["spec"]["containers"].insert(0, {"name": "spy", "image": "spy"}),
        ),
        (
            (*SPEC, "f:volumes", 'k:{"name":"more"}'),
            lambda spec: spec["template"]["spec"]["volumes"].insert(0, {"name": "more", "emptyDir": {}}),
        ),
        (
            ("f:template", "f:metadata", "f:annotations", "f:a~b/c"),
            lambda spec: spec["template"]["metadata"].update(annotations={"a~b/c": "1"}),
        ),
        (
            (*SPEC, "f:containers", CONTAINER, "f:ports", 'k:{"containerPort":9,"protocol":"TCP"}'),
            lambda spec: spec["template"]["spec"]["containers"][0]["ports"].append(
                {"containerPort": 9, "protocol": "TCP"}
            ),
        ),
        (
            (*SPEC, "f:containers", CONTAINER, "f:securityContext", "f:privileged"),
            lambda spec: spec["template"]["spec"]["containers"][0]["securityContext"].update(privileged=True),
        ),
    ],
)  # fmt: skip
def test_whatever_is_added_is_taken_out_again(path, add):
    """Fields, keys, and items of lists, anywhere."""
    found = there(entry(*path))
    add(found["spec"])
    assert undone(found)["spec"] == clean()


def test_several_additions_are_taken_out_by_one_patch():
    """The indices of earlier items stay valid while later ones are removed."""
    names = ("A", "B", "C")
    entries = [
        entry(*SPEC, "f:containers", CONTAINER, "f:env", f'k:{{"name":"{each}"}}', manager=f"tool-{each}")
        for each in names
    ]
    found = there(*entries, entry("f:minReadySeconds"))
    for position, name in zip((0, 4, 7), names, strict=True):
        worker(found)["env"].insert(position, {"name": name, "value": "1"})
    found["spec"]["minReadySeconds"] = 7
    assert undone(found)["spec"] == clean()
    assert additions(MANIFEST, found).managers == ("kubectl-set", "tool-A", "tool-B", "tool-C")
    assert str(additions(MANIFEST, found)).endswith(" and 1 more")


def test_a_second_source_puts_the_whole_item_back():
    """A volume without any source would be invalid, so the item is replaced."""
    found = there(entry(*SPEC, "f:volumes", 'k:{"name":"credentials"}', "f:hostPath"))
    volume = next(each for each in found["spec"]["template"]["spec"]["volumes"] if each["name"] == "credentials")
    del volume["secret"]
    volume["hostPath"] = {"path": "/etc"}
    assert undone(found)["spec"] == clean()
    assert additions(MANIFEST, found).fields == ("spec.template.spec.volumes[credentials].hostPath",)


def test_what_controllers_and_the_operator_own_is_no_addition():
    """Neither the status nor applied fields; but a field that the operator's patch restored and that is no longer
    wanted is removed.
    """
    path = (*SPEC, "f:containers", CONTAINER, "f:env", 'k:{"name":"OLD"}')
    for given in (entry(*path, subresource="status"), entry(*path, manager="millpond-operator", operation="Apply")):
        found = there(given)
        worker(found)["env"].append({"name": "OLD", "value": "1"})
        assert additions(MANIFEST, found) is None
    found = there(entry(*path, manager="millpond-operator"))
    worker(found)["env"].append({"name": "OLD", "value": "1"})
    assert undone(found)["spec"] == clean()


def test_a_field_that_is_gone_is_no_addition():
    """An owned field may have been removed since."""
    assert additions(MANIFEST, there(entry(*SPEC, "f:volumes", 'k:{"name":"more"}'), entry(*SPEC, "f:hostPID"))) is None


def test_strangers_are_those_who_own_something_in_the_template():
    """Neither owners of other parts, nor the operator."""
    mine = entry(*SPEC, "f:hostPID", manager="millpond-operator")
    assert foreign_managers(there(mine, entry("f:replicas", manager="autoscaler"))) == ()
    assert foreign_managers(there(mine, entry(*SPEC, "f:hostPID"))) == ("kubectl-set",)


def test_a_default_that_came_back_is_no_addition():
    """The API server attributes it to the operator, which removed the other value."""
    found = there(entry(*SPEC, "f:dnsPolicy", manager="millpond-operator"))
    assert additions(MANIFEST, found) is None
    found = there(entry(*SPEC, "f:dnsPolicy"))
    assert additions(MANIFEST, found).fields == ("spec.template.spec.dnsPolicy",)
