"""The HELP text of each metric stands alone: what it counts, in which unit, and when it is bad."""

from __future__ import annotations

import re

import pytest

from monitoring.inventory import operator_metrics, worker_metrics

TEXTS = {
    name: text
    for name, (_, text) in {**worker_metrics(), **operator_metrics()}.items()
    if name.startswith("millpond_")  # the others are those of controller-runtime, with its texts
}

#: The unit at the end of a name, and the word for it at the beginning of the text.
UNITS = {
    "seconds": r"^(Seconds|When .* in seconds since 1970|The longest time .* in seconds)\b",
    "bytes": r"^(Bytes|Free bytes)\b",
    "records": r"^(Records|Changelog records|Updates|Results)\b",
    "offset": r"^Offset\b",
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_help_text_says_what_in_which_unit_and_when_it_is_bad(name: str) -> None:
    """A person reads it in Grafana, without the documentation."""
    text = TEXTS[name]
    what, _, bad = re.split(r"(\. (?=Bad when |Never bad by itself))", text, maxsplit=1)
    assert len(what.split()) >= 4, f"what does it count? {text}"
    assert len(bad.split()) >= 4, f"when is it bad? {text}"
    assert text.endswith("."), text
    unit = name.removesuffix("_total").rpartition("_")[2]
    assert re.search(UNITS.get(unit, ""), what), f"the unit {unit} is not how it begins: {text}"
    assert "`" not in text, f"Prometheus shows no Markdown: {text}"
    assert "\n" not in text


def test_no_two_metrics_have_the_same_text() -> None:
    """A text that fits another metric too does not say what is counted."""
    assert len(set(TEXTS.values())) == len(TEXTS)


def test_metrics_that_texts_name_exist() -> None:
    """Texts refer to other metrics by their names on the page."""
    for name, text in TEXTS.items():
        for other in re.findall(r"millpond_[a-z0-9_]+", text):
            assert other in TEXTS, f"{name}: {other}"
