"""Reports about values that manifests and settings take."""

from __future__ import annotations

import pytest

from millpond.runtime.config.model import Config
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
