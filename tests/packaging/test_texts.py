"""The draw of texts that `make texts` shows for reading."""

from __future__ import annotations

import pytest

from tests.packaging.texts import drawn, texts


@pytest.mark.slow
def test_draw_has_texts_of_each_kind_and_is_the_same_for_a_seed():
    kinds = [kind for kind, _, _ in drawn(1)]
    assert {kind: kinds.count(kind) for kind in texts()} == {"message": 20, "log line": 20, "docstring": 20}
    assert drawn(1) == drawn(1) != drawn(2)
