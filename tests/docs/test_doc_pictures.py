"""`make docs-pictures` sees what is wrong with a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pictures import faults
from tests.support.chromium import ChromiumMissing, chromium

LINK = "<a href='#' style='color: #06c'>link</a>"
GOOD = "<p style='color: #444'>text " + LINK + "</p><pre style='overflow: auto'>" + "long " * 99 + "</pre>"
BAD = """
<p style="color: #aaa">pale</p> <p style="color: #666; background: #555">on a dark ground</p>
<p style="width: 50px; overflow: hidden; white-space: nowrap">cut off at the right edge</p>
<div style="width: 2000px">wide</div> <img src="missing.png" width="9" height="9">
"""


@pytest.mark.chromium
def test_faults_of_a_page_are_found(tmp_path: Path) -> None:
    """A good page has none; each fault of the other one is named."""
    (tmp_path / "good.html").write_text(f"<article>{GOOD}</article>")
    (tmp_path / "bad.html").write_text(f"<article>{BAD}</article>")
    try:
        with chromium() as browser:
            page = browser.new_page()
            page.look(700)
            page.open((tmp_path / "good.html").as_uri())
            assert faults(page) == []
            page.open((tmp_path / "bad.html").as_uri())
            found = faults(page)
    except ChromiumMissing as missing:
        pytest.skip(str(missing))
    expected = ["the page is 2008 px wide", "missing.png does not load", "cut off", "contrast 2.3", "contrast 1.3"]
    assert [each for each in expected if not any(each in fault for fault in found)] == [], found
