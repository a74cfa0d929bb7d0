"""Draw cases: topologies several operators deep, and inputs for them.

Operators and pairs of operators that were drawn least so far in a run are preferred, so that a run reaches all of them
about equally often.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import tests.differential.drawing.streams
import tests.differential.drawing.tables  # noqa: F401 - both add to RULES
from millpond.topology.optimization import OPTIMIZATIONS
from tests.differential import rules
from tests.differential.drawing.drafts import RULES, Case, Draft, Out, Rule, Step
from tests.differential.ours.topologies import OPERATORS

_CANDIDATES = 40
_LETTERS = "abc"
_OPTIMIZATIONS = ("all", "all", *OPTIMIZATIONS)
_WITHOUT_MERGES = ("reuse.ktable.source.topics", "single.store.self.join")


class Generator:
    """Draws cases of one seed.

    Args:
        seed: the seed.
        counts: how often each operator and pair was compared so far; it is read, not changed.
    """

    def __init__(self, seed: int, counts: Counter[Any]) -> None:
        self._rng = random.Random(seed)
        self._counts = counts
        self._rules = [each for each in RULES.values() if each.op in OPERATORS]
        self._followers: dict[str, list[str]] = {}

    def case(self) -> Case:
        """Return a new case."""
        rng = self._rng
        draft = Draft(rng, cached=rng.randrange(100) < 30, disk=rng.randrange(100) < 8)
        self._draw_stores(draft)
        for op in ("StreamsBuilder.stream", "StreamsBuilder.stream", "StreamsBuilder.table"):
            self._apply(draft, RULES[op], [])
        if draft.chance(50):
            self._apply(draft, RULES["StreamsBuilder.table"], [])
        if draft.chance(40):
            self._apply(draft, RULES["StreamsBuilder.globalTable"], [])
        for _ in range(rng.randrange(4, 16)):
            self._grow(draft)
        self._finish(draft)
        case: Case = {"config": {}}
        if not draft.cached:
            case["config"]["statestore.cache.max.bytes"] = "0"
        if rng.randrange(100) < 50:
            case["config"]["topology.optimization"] = rng.choice(
                # rules.PROCESSORS_ABOVE_TOPICS
                _WITHOUT_MERGES
                if any(step["op"].startswith("KStream.process") for step in draft.steps)
                else _OPTIMIZATIONS
            )
        if draft.disk:
            case["rocksdb"] = True
        case["steps"] = draft.steps
        case["input"] = _input(draft)
        rules.avoid(case)
        return case

    def _draw_stores(self, d: Draft) -> None:
        for kind in d.rng.sample(
            ("key-value", "timestamped", "lru", "window", "session", "versioned"), d.one(0, 0, 1, 2)
        ):
            name = f"own-{kind}"
            step: Step = {"id": d.new_id(), "op": "StreamsBuilder.addStateStore", "kind": kind, "name": name}
            if kind in ("window", "session", "versioned"):
                step["retention"] = d.one(100, 400)
            if kind == "lru":
                step["lru"] = d.one(1, 2, 3)
            elif kind != "versioned" and (not d.disk or d.chance(50)):
                step["in_memory"] = True
            # Expired windows may be in the original's cache still; see rules.EXPIRED_IN_CACHE.
            if kind in ("key-value", "timestamped") and d.chance(20):
                step["caching"] = True
                name = step["name"] = f"{name}-cached"
            d.steps.append(step)
            d.stores.append(name)

    def _grow(self, d: Draft) -> None:
        """Add the operator that was compared least, of some that could be added."""
        best: tuple[float, Rule, list[Out]] | None = None
        for _ in range(_CANDIDATES):
            chosen = d.rng.choice(self._rules)
            inputs = self._inputs(d, chosen)
            if inputs is None:
                continue
            score = self._score(chosen, inputs) + d.rng.random() * 3
            if best is None or score < best[0]:
                best = score, chosen, inputs
        if best is not None:
            self._apply(d, best[1], best[2])

    def _inputs(self, d: Draft, chosen: Rule) -> list[Out] | None:
        found = []
        for kind in chosen.takes:
            fitting = [out for out in d.made if out.kind == kind]
            if not fitting:
                return None
            # Later ones are preferred, so that topologies become deep.
            found.append(fitting[max(d.rng.randrange(len(fitting)), d.rng.randrange(len(fitting)))])
        return found

    def _score(self, chosen: Rule, inputs: list[Out]) -> float:
        counts = self._counts
        least = min((counts[out.label, chosen.op] for out in inputs), default=counts[chosen.op] * 3)
        if chosen.gives is not None:
            ahead = min((counts[chosen.op, op] for op in self._after(chosen.gives)), default=0)
            least = min(least, ahead + 2)
        return least

    def _after(self, kind: str) -> list[str]:
        if kind not in self._followers:
            self._followers[kind] = [each.op for each in self._rules if kind in each.takes]
        return self._followers[kind]

    def _apply(self, d: Draft, chosen: Rule, inputs: list[Out]) -> Out | None:
        drawn = chosen.draw(d, inputs)
        if drawn is None:
            return None
        parameters, fields = drawn
        step: Step = {"id": d.new_id(), "op": chosen.op}
        if inputs:
            step["of"] = [out.id for out in inputs]
        step |= parameters
        if (
            d.chance(8)
            and chosen.op not in ("KStream.branch", "KGroupedStream.windowedBy", "CogroupedKStream.windowedBy")
            and "emitStrategy" not in chosen.op
            and "cogroup" not in chosen.op
        ):
            step["name"] = f"named-{d.new_id()}"
        d.steps.append(step)
        if chosen.gives is None:
            return None
        inherited: dict[str, Any] = {"history": rules.history_of(step, {each["id"]: each for each in d.steps})}
        if inputs:
            first = inputs[0]
            inherited |= {"key": first.key, "value": first.value}
            inherited |= {"final": first.final, "emits_final": first.emits_final}
        out = Out(**{"id": step["id"], "kind": chosen.gives, "label": chosen.op, **inherited, **fields})
        d.made.append(out)
        return out

    def _finish(self, d: Draft) -> None:
        """Write what no step reads to a topic, so that it can be seen."""
        used = {each for step in d.steps for each in step.get("of", ())}
        for out in list(d.made):
            if out.id in used:
                continue
            stream: Out | None = out
            if out.kind == "table":
                stream = self._apply(d, RULES["KTable.toStream"], [out])
            if stream is not None and stream.kind == "stream":
                self._apply(d, RULES["KStream.to"], [stream])


def _topics(steps: list[Step]) -> list[str]:
    return sorted(
        {
            topic
            for step in steps
            for topic in (*step.get("topics", ()), step.get("topic", "out"))
            if step["op"].startswith("StreamsBuilder.") and topic != "out"
        }
    )


def _input(d: Draft) -> list[Any]:
    rng = d.rng
    topics = _topics(d.steps)
    now = 1000
    made: list[Any] = []
    for _ in range(rng.randrange(8, 30)):
        if rng.randrange(100) < 5:
            made.append({"advance": rng.choice((10, 50, 120))})
            continue
        now += rng.choice((0, 0, 1, 5, 10, 20, 30))
        if rng.randrange(100) < 4:
            now += rng.choice((200, 500))
        if d.disk and rng.randrange(100) < 3:
            now += rng.choice((60_000, 130_000))
        match rng.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                time = now
            case 5 | 6:
                time = now - rng.choice((1, 5, 10, 20, 40))
            case 7:
                time = now - rng.choice((50, 100, 200, 400))
            case 8:
                time = now // 50 * 50 + rng.choice((-1, 0, 1))
            case _:
                time = now // 30 * 30 + rng.choice((-1, 0, 1))
        key = None if rng.randrange(100) < 8 else f"k{rng.randrange(1, 5)}"
        value = None if rng.randrange(100) < 14 else rng.choice(_LETTERS) + str(rng.randrange(10))
        record: list[Any] = [rng.choice(topics), key, value, max(0, time)]
        if rng.randrange(100) < 20:
            record.append([["h", rng.choice(("x", "y", None))] for _ in range(rng.randrange(1, 3))])
        made.append(record)
    return made


def possible_pairs() -> Iterator[tuple[str, str]]:
    """Return all pairs of operators of which the second can follow the first."""
    there = [each for each in RULES.values() if each.op in OPERATORS]
    gives: dict[str, set[str]] = {}
    for each in there:
        kinds = {each.gives}
        if each.op == "KGroupedStream.windowedBy":
            kinds = {"windowed", "sessions"}
        elif each.op == "CogroupedKStream.windowedBy":
            kinds = {"windowed-cogrouped", "sessions-cogrouped"}
        for kind in kinds - {None}:
            gives.setdefault(str(kind), set()).add(each.op)
    for second in there:
        for kind in set(second.takes):
            for first in sorted(gives.get(kind, ())):
                yield first, second.op
