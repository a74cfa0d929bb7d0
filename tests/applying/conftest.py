from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.applying.applier import Bench, bench_of
from tests.kubernetes.support import run


@pytest.fixture
def on_bench(api, api_server, crds, namespace) -> Callable[..., None]:
    """Runs a scenario with the Applier of the StreamApp `delays`, which is made for it."""

    def go(scenario: Callable[[Bench], Awaitable[None]], **spec: Any) -> None:
        given = {"image": "delays:3", "topology": "app:delays", "kafka": {"bootstrapServers": "kafka:9092"}}
        made = api.create(
            {
                "apiVersion": "millpond.dev/v1alpha1",
                "kind": "StreamApp",
                "metadata": {"name": "delays", "namespace": namespace},
                "spec": given | spec,
            }
        )

        async def main() -> None:
            async with bench_of(api_server, made) as bench:
                await scenario(bench)

        run(main())

    return go
