"""Generated topologies have the results of Kafka Streams: other ones in each run."""

from __future__ import annotations

import pytest

from tests.differential import stored
from tests.differential.original import Original
from tests.differential.rules import is_meant
from tests.differential.running import run, save

_CASES = 1000
"""The cases of a run of `make test`; `make nightly` and `make differential` generate thousands."""


@pytest.mark.slow
@pytest.mark.timeout(900)  # a difference is made smaller before it is shown
def test_generated_topologies_have_the_results_of_the_original(original: Original, seed: int) -> None:
    """Records, stores, changelogs, internal topics and descriptions are the same."""
    result = run(original, _CASES, seed)
    again = f"all cases of this run: python -m tests.differential --seed {seed} --cases {result.compared}"
    print(f"{result.compared} cases of seed {seed} in {result.seconds:.0f} s; {again}")
    files = save(result)
    shown = [
        f"{what}\n{file.read_text()}replay: python -m tests.differential --replay {file}\n{again}"
        for file, (_, what) in zip(files, result.differences, strict=True)
    ]
    assert not shown, "\n".join(shown)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_exception_keeps_its_text_however_often_it_is_thrown(
    original: Original, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a failure that is meant (`rules.FAILURES`) is a difference in a long run: compiled Java omits the text."""
    case = stored.read(stored.HERE / "cases" / "a-deleted-sliding-window-in-a-cache.json")
    texts = {each["error"]["text"] for each in original.answers([case])}
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # tests run Java without the compiler of long runs
    with Original(lasting=True) as lasting:
        for _ in range(100):
            texts |= {each["error"]["text"] for each in lasting.answers([case] * 20)}
    [text] = texts
    assert is_meant(text)
