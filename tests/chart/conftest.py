from __future__ import annotations

import pytest

from tests.chart.rendering import Rendering
from tests.support.programs.helm import HELM_3, HELM_4


@pytest.fixture(scope="session")
def rendering(helm) -> Rendering:
    """The chart, rendered by Helm 4."""
    return Rendering(helm[HELM_4])


@pytest.fixture(scope="session", params=[HELM_3, HELM_4])
def each_rendering(request, helm) -> Rendering:
    """The chart, rendered by each Helm."""
    return Rendering(helm[request.param])
