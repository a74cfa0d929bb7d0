from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api import ApiFailure
from tests.crds.rules import (
    ASSIGNMENT_TRANSITIONS,
    BOOTSTRAP_TRANSITIONS,
    BOOTSTRAPS,
    BOOTSTRAPS_OF_APPS,
    OBJECT,
    STATUS_TRANSITIONS,
    TRANSITIONS,
    changed,
)


def rules(schema: Any) -> Iterator[dict[str, str]]:
    """All rules in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
        for key, value in schema.items():
            if key != "x-kubernetes-validations":
                yield from rules(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from rules(value)


def message(definition: dict[str, Any], beginning: str) -> str:
    """The message with this beginning; several rules may share it."""
    found = {rule["message"] for rule in rules(definition) if rule["message"].startswith(beginning)}
    assert len(found) == 1, beginning
    return found.pop()


def refusal(call, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ApiFailure) as caught:
        call(*arguments, **options)
    assert caught.value.status == 422, caught.value
    return caught.value.message


def assert_told_once(told: str, words: str) -> None:
    """Check that one rule rejects it, and that its message has the rejected value or none, but not the name of its
    type.
    """
    assert words in told
    assert told.count("Invalid value") + told.count("Forbidden") == 1, told
    assert '"object"' not in told and '"array"' not in told and '"string"' not in told, told


@pytest.mark.parametrize("case", (*OBJECT, *BOOTSTRAPS_OF_APPS), ids=lambda case: case.message)
def test_each_rule_refuses_its_mistake_and_nothing_else(case, api, stream_app, definitions):
    """Each message says what to do."""
    told = refusal(api.create, stream_app(case.wrong))
    assert_told_once(told, case.told or message(definitions["StreamApp"], case.message))
    api.apply(stream_app(case.right), dry_run=True)


@pytest.mark.parametrize("case", TRANSITIONS, ids=lambda case: case.message)
def test_each_transition_rule_refuses_its_change_and_nothing_else(case, api, stream_app, definitions):
    """Each transition rule rejects a change, and accepts another one of the same object."""
    there = api.create(stream_app(case.before))
    told = refusal(api.replace, changed(there, case.wrong))
    assert_told_once(told, case.told or message(definitions["StreamApp"], case.message))
    api.replace(changed(there, case.right))


@pytest.mark.parametrize("case", STATUS_TRANSITIONS, ids=lambda case: case.message)
def test_an_older_leader_cannot_write_the_status(case, api, stream_app, definitions):
    """The epoch in the status never decreases, and cannot be removed."""
    there = api.create(stream_app())
    there = api.replace(there | {"status": dict(case.before)}, subresource="status")
    told = refusal(api.replace, there | {"status": dict(case.wrong)}, subresource="status")
    assert message(definitions["StreamApp"], case.message) in told
    api.replace(there | {"status": dict(case.right)}, subresource="status")


@pytest.mark.parametrize("case", ASSIGNMENT_TRANSITIONS, ids=lambda case: case.message)
def test_an_older_leader_cannot_write_an_assignment(case, api, stream_assignment, definitions):
    """Term and number of an assignment never decrease, even if the writer forces it."""
    api.apply(stream_assignment(case.before))
    told = refusal(api.apply, stream_assignment(case.wrong))
    assert message(definitions["StreamAssignment"], case.message) in told
    api.apply(stream_assignment(case.right))


@pytest.mark.parametrize("case", BOOTSTRAPS, ids=lambda case: case.message)
def test_each_rule_of_snapshots_refuses_its_mistake_and_nothing_else(case, api, state_bootstrap, definitions):
    """The API server rejects an invalid StateBootstrap at once."""
    told = refusal(api.create, state_bootstrap(case.wrong))
    beginning = message(definitions["StateBootstrap"], case.message).partition(":")[0]
    assert_told_once(told, "metadata.name becomes part" if ".metadata/name" in case.wrong else beginning)
    api.apply(state_bootstrap(case.right), dry_run=True)


@pytest.mark.parametrize("case", BOOTSTRAP_TRANSITIONS, ids=lambda case: case.message)
def test_a_snapshot_stays_what_it_was_asked_to_be(case, api, state_bootstrap, definitions):
    """Only some fields can be changed later."""
    there = api.create(state_bootstrap(case.before))
    told = refusal(api.replace, changed(there, case.wrong))
    assert_told_once(told, message(definitions["StateBootstrap"], case.message))
    api.replace(changed(there, case.right))


def test_every_rule_is_tried(definitions):
    """Every rule has a case of what it rejects and what it accepts."""
    cases = (OBJECT, BOOTSTRAPS_OF_APPS, BOOTSTRAPS, TRANSITIONS, STATUS_TRANSITIONS, ASSIGNMENT_TRANSITIONS)
    tried = [case.message for some in (*cases, BOOTSTRAP_TRANSITIONS) for case in some]
    all_rules = list(rules(list(definitions.values())))
    missing = {rule["message"] for rule in all_rules if not any(rule["message"].startswith(one) for one in tried)}
    assert not missing
    assert len(all_rules) > 40
