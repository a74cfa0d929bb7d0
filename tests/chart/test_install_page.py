"""The values in `docs/install.md` exist; tests/docs checks its commands."""

from __future__ import annotations

import re

from helm.generate import CHART, ROOT

PAGE = (ROOT / "docs" / "install.md").read_text()


def test_the_page_names_values_that_exist():
    """A value that is renamed is renamed in the page."""
    known = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    roots = {each.partition(".")[0] for each in known}
    named = {each for each in re.findall(r"`([a-z]\w*(?:\.\w+)+)(?::[^`]*)?`", PAGE) if each.partition(".")[0] in roots}
    assert len(named) > 10
    assert {each for each in named if each not in known and not any(k.startswith(f"{each}.") for k in known)} == set()
