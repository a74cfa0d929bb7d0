"""Look at the documentation as pictures: `make docs-pictures`.

Opens every page of build/docs at 1,300 and 700 pixels, light and dark, saves what a reader sees in build/docs-pictures,
and prints what is wrong: a page that scrolls sideways, text that is cut off or too pale to read, a picture that does
not load, an error of the browser.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.support.chromium import Page, chromium

_ROOT = Path(__file__).parents[1]
_PAGES, _TO = _ROOT / "build" / "docs", _ROOT / "build" / "docs-pictures"
_LOOKS = [(1300, "light"), (1300, "dark"), (700, "light"), (700, "dark")]
_GENERATED = {"genindex.html", "search.html", "py-modindex.html"}
_HIGHEST = 4000  # px of a picture: what is below looks like what is above
_LOOK = (Path(__file__).parent / "pictures.js").read_text()


def faults(page: Page) -> list[str]:
    """Return what is wrong with the page that is open: one short sentence for each kind of fault and place."""
    found: list[str] = page.run(_LOOK)
    found += [f"the browser reports: {each}" for each in page.errors]
    page.errors.clear()
    return found


def main(chosen: list[str]) -> int:
    """Take the pictures of the chosen pages, or of all, and print the faults; return how many pages have some."""
    pages = sorted(
        path
        for path in _PAGES.rglob("*.html")
        if path.name not in _GENERATED and (not chosen or str(path.relative_to(_PAGES).with_suffix("")) in chosen)
    )
    bad = set()
    with chromium() as browser:
        page = browser.new_page()
        for number, path in enumerate(pages, start=1):
            name = str(path.relative_to(_PAGES).with_suffix(""))
            click.echo(f"\r{number:4} of {len(pages)}  {name:60}", nl=False, err=True)
            for width, scheme in _LOOKS:
                page.look(width, 900, scheme)
                page.open(path.as_uri())
                height = page.run("document.documentElement.scrollHeight")
                for fault in faults(page):
                    bad.add(name)
                    click.echo(f"\r{name}  {width} {scheme}: {fault}")
                page.look(width, min(height, _HIGHEST), scheme)
                target = _TO / f"{name.replace('/', '-')}-{width}-{scheme}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                page.screenshot(target, whole=False)
    click.echo(f"\r{len(pages)} pages at {len(_LOOKS)} looks, {len(bad)} with faults; see {_TO.relative_to(_ROOT)}")
    return len(bad)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
