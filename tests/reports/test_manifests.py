"""Reports about values that manifests and settings take."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.runtime.config.model import Config
from millpond_operator.resources.diff import within
from tests.crds.rules import changed
from tests.crds.test_offline import STREAM_APP, told

_MOST = 2**31 - 1


@pytest.mark.parametrize("value", [0, 1, 101, _MOST])
def test_any_number_of_warm_ups_is_taken(value: int) -> None:
    """Some want that every task warms up at once, which is the largest number, and some that none does.

    https://github.com/apache/kafka/pull/8282
    """
    manifest = changed(STREAM_APP, {"maxWarmupReplicas": value})
    assert told(manifest) == []
    setting = Config.of({"application.id": "a", "max.warmup.replicas": value}, required=())
    assert setting.max_warmup_replicas == value


@pytest.mark.parametrize("value", [-1, _MOST + 1])
def test_no_number_of_warm_ups_is_below_zero_or_too_large(value: int) -> None:
    """Both bounds are those of the setting."""
    said = told(changed(STREAM_APP, {"maxWarmupReplicas": value}))
    assert {each.partition(":")[0] for each in said} == {"spec.maxWarmupReplicas"}


def test_a_fraction_of_memory_is_an_amount_or_is_refused() -> None:
    """Strimzi could not parse fractions, nor the thousandths of bytes that the API server makes of some.

    https://github.com/strimzi/strimzi-kafka-operator/issues/1435
    https://github.com/strimzi/strimzi-kafka-operator/pull/3729
    """

    def with_memory(amount: str) -> dict[str, Any]:
        return {"resources": {"requests": {"memory": amount}}}

    assert told(changed(STREAM_APP, with_memory("3.5Gi"))) == []
    assert within(with_memory("3.5Gi"), with_memory("3584Mi"))
    [said] = told(changed(STREAM_APP, with_memory("2.85Gi")))
    assert "which is no whole number of bytes" in said
    assert within(with_memory("2.85Gi"), with_memory("3060164198400m"))
