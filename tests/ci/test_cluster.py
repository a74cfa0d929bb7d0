"""The cluster of a run: whichever the machine can have, or one sentence why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ci.cluster import Machine, Way, choose

_NOTHING = Machine(kubeconfig=False, kind=False, registry=False, scripts=False, root=False, go=False)
_EVERYTHING = Machine(kubeconfig=True, kind=True, registry=True, scripts=True, root=True, go=True)


@pytest.mark.parametrize(
    ("machine", "way"),
    [
        (_EVERYTHING, Way.GIVEN),
        (replace(_EVERYTHING, kubeconfig=False), Way.KIND),
        (replace(_EVERYTHING, kubeconfig=False, registry=False), Way.BUILT),
    ],
)
def test_a_given_cluster_comes_before_kind_and_kind_before_building(machine, way):
    """Nothing is built that a registry has, and nobody's own cluster is replaced."""
    assert choose(machine) is way


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (_NOTHING, "KUBECONFIG"),
        (replace(_NOTHING, kind=True), "pulled"),
        (replace(_NOTHING, scripts=True, go=True), "root"),
        (replace(_NOTHING, scripts=True, root=True), "Go"),
    ],
)
def test_without_a_cluster_one_sentence_tells_why(machine, why):
    """It names what is missing."""
    found = choose(machine)
    assert isinstance(found, str)
    assert why in found
