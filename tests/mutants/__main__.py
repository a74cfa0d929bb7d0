"""`python -m tests.mutants`: put each mutant into a copy of the code, and show which test catches it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

from tests.mutants.chosen import shown
from tests.mutants.mutants import AREAS, Mutant, load
from tests.mutants.running import Result, caught, healthy

_BOOTSTRAP = "MILLPOND_TEST_BOOTSTRAP_SERVERS"


def main(arguments: list[str]) -> int:
    """Run; the exit code is 0 when every mutant is caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--area", choices=AREAS, action="append", help="only mutants of this area")
    parser.add_argument("--only", metavar="ID", action="append", help="only this mutant")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--without-broker", action="store_true", help="leave out mutants that need a Kafka broker")
    parser.add_argument(
        "--chosen",
        action="store_true",
        help="run nothing: show whether `make check` runs the tests that catch a mutant",
    )
    given = parser.parse_args(arguments)
    mutants = [
        each
        for each in load()
        if (not given.area or each.area in given.area)
        and (not given.only or each.id in given.only)
        and not (given.without_broker and each.broker)
    ]
    if not mutants:
        print("No mutant has that id and area.")
        return 1
    if given.chosen:
        return shown(mutants)
    with _broker(mutants) as environment:
        tests = list(dict.fromkeys(test for each in mutants for test in each.tests))
        print(f"{len(tests)} tests without a mutant ...", flush=True)
        trouble = healthy(tests, environment)
        if trouble:
            print(f"{trouble}\nThese tests have to pass without a mutant first.")
            return 1
        results = _run(mutants, environment, given.jobs)
    return 1 if _missed(results) else 0


def _run(mutants: Sequence[Mutant], environment: dict[str, str], jobs: int) -> list[Result]:
    wide = max(len(each.id) for each in mutants)
    results: list[Result] = []
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(caught, each, environment) for each in mutants]):
            result = future.result()
            results.append(result)
            verdict = "BROKEN  " if result.trouble else "caught  " if result.by else "SURVIVED"
            what = result.by or result.trouble or result.mutant.harm
            mutant = result.mutant
            print(f"{mutant.area:10}  {mutant.id:{wide}}  {verdict}  {result.seconds:5.1f} s  {what}", flush=True)
    return results


def _missed(results: Sequence[Result]) -> list[Result]:
    """Print the sums. Return the mutants that no test caught."""
    missed = [each for each in results if not each.by]
    print()
    for area in AREAS:
        of_area = [each for each in results if each.mutant.area == area]
        if of_area:
            print(f"{area:10}  {sum(bool(each.by) for each in of_area)} of {len(of_area)} caught")
    seconds = sum(each.seconds for each in results)
    print(f"{'all':10}  {len(results) - len(missed)} of {len(results)} caught, {seconds:.0f} s")
    for each in missed:
        print(f"not caught: {each.mutant.id}")
    return missed


@contextmanager
def _broker(mutants: Sequence[Mutant]) -> Iterator[dict[str, str]]:
    """The environment of the tests: with the address of one broker for all when any of them needs it."""
    if not any(each.broker for each in mutants):
        yield {}
        return
    from millpond.broker import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield {_BOOTSTRAP: broker.bootstrap_servers}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
