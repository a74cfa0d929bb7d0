"""Write the page of errors: python -m tests.mistakes --write."""

from __future__ import annotations

import sys

from tests.mistakes.page import PAGE, page

if sys.argv[1:] == ["--write"]:
    PAGE.write_text(page(), encoding="utf-8")
else:
    print(__doc__)
