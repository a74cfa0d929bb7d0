"""Draw cases: topologies several operators deep, and inputs for them.

Operators and pairs of operators that were drawn least so far in a run are preferred, so that a run reaches all of them
about equally often.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tests.differential.drawing.streams
import tests.differential.drawing.tables  # noqa: F401 - both add to RULES
from millpond.topology.optimization import OPTIMIZATIONS
from tests.differential import rules
from tests.differential.drawing.coverage import pairs_of
from tests.differential.drawing.drafts import RULES, Case, Draft, Out, Rule, Step
from tests.differential.drawing.volumes import MOST, volume
from tests.differential.ours.topologies import OPERATORS

_CANDIDATES = 120
_AIMS = 16
"""How many pairs of operators a case is made for, at most."""
_DEEPEST = 4
"""How many operators are put above one that is wanted, until simple ones are taken."""
_SHALLOW = {
    "StreamsBuilder.stream",
    "StreamsBuilder.table",
    "StreamsBuilder.globalTable",
    "KStream.toTable",
    "KStream.groupByKey",
    "KTable.groupBy",
    "KStream.split",
    "KGroupedStream.windowedBy",
    "KGroupedStream.cogroup",
    "CogroupedKStream.windowedBy",
}
_SAME_KEYS = {
    *("KStream.merge", "KStream.join", "KStream.leftJoin", "KStream.outerJoin", "KStream.joinTable"),
    *("KStream.leftJoinTable", "KTable.join", "KTable.leftJoin", "KTable.outerJoin", "CogroupedKStream.cogroup"),
}
_PLAIN_KEYS = {"KTable.joinForeign", "KTable.leftJoinForeign"}
_KINDS = {
    "KGroupedStream.windowedBy": ("windowed", "sessions"),
    "CogroupedKStream.windowedBy": ("windowed-cogrouped", "sessions-cogrouped"),
}
"""The kinds of operators that make several."""
_TWINS = 40
"""The percentage of joins of tables whose second table is made as the first one, of other topics."""
_NOT_COPIED = re.compile("ogroup|global|split|branch|[jJ]oin|process|transformValues|merge|Topology")
"""Operators that are not copied for a twin: they have several inputs, or stores of their own."""
_LETTERS = "abc"
_PRESSED = 25
"""The percentage of cases that millpond runs without any entry in its stores' memory; see ours/pressure.py."""
_OPTIMIZATIONS = ("all", "all", *OPTIMIZATIONS)
_WITHOUT_MERGES = ("reuse.ktable.source.topics", "single.store.self.join")

_UNMERGED = re.compile(r"KStream\.process|CogroupedKStream\.cogroup|.*merge")
"""Operators that are not compared with the original's merges of repartition topics."""


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
        self._pairs = sorted(set(possible_pairs()))
        self._drawn: Counter[Any] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        """How often a pair was wanted and could not be drawn."""

    def case(self) -> Case:
        """Return a new case."""
        rng = self._rng
        draft = Draft(rng, cached=rng.randrange(100) < 30, disk=rng.randrange(100) < 3)
        self._draw_stores(draft)
        for op in ("StreamsBuilder.stream", "StreamsBuilder.stream", "StreamsBuilder.table"):
            self._apply(draft, RULES[op], [])
        if draft.chance(50):
            self._apply(draft, RULES["StreamsBuilder.table"], [])
        if draft.chance(40):
            self._apply(draft, RULES["StreamsBuilder.globalTable"], [])
        size = len(draft.steps) + rng.randrange(14, 30)
        for _ in range(_AIMS):
            if len(draft.steps) < size:
                self._aim(draft)
        self._finish(draft)
        case: Case = {"config": {}}
        if not draft.cached:
            case["config"]["statestore.cache.max.bytes"] = "0"
        if rng.randrange(100) < 50:
            case["config"]["topology.optimization"] = rng.choice(
                # rules.PROCESSORS_ABOVE_TOPICS, rules.MERGED_WITH_ITSELF, rules.MERGED_IN_A_COGROUP
                _WITHOUT_MERGES if any(_UNMERGED.match(step["op"]) for step in draft.steps) else _OPTIMIZATIONS
            )
        if draft.disk:
            case["rocksdb"] = True
        if rng.randrange(100) < _PRESSED:
            case["pressure"] = True
        case["steps"] = draft.steps
        case["input"] = _input(draft)
        rules.avoid(case)
        self._drawn.update(pairs_of(case))
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

    def _aim(self, d: Draft) -> None:
        """Add the pair of operators that was compared least, of some, and what is needed above it."""
        least = min(d.rng.sample(self._pairs, _CANDIDATES), key=lambda pair: self._score(*pair) + d.rng.random() * 3)
        first, second = RULES[least[0]], RULES[least[1]]
        kind = next(kind for kind in second.takes if kind in _KINDS.get(first.op, (first.gives,)))
        out = self._make(d, first, kind, 0)
        made = None if out is None else self._use(d, second, out)
        if not made:
            self._failed[least] += 1

    def _make(self, d: Draft, chosen: Rule, kind: str, depth: int) -> Out | None:
        """Add an operator whose result has a kind, and what is needed above it."""
        inputs: list[Out] = []
        for taken in chosen.takes:
            found = self._find(d, chosen, taken, inputs, depth)
            if found is None:
                return None
            inputs.append(found)
        d.wanted = kind
        return self._apply(d, chosen, inputs)

    def _use(self, d: Draft, chosen: Rule, out: Out) -> bool:
        """Add an operator that reads a result, and what else it reads; whether it could be added."""
        places = [place for place, kind in enumerate(chosen.takes) if kind == out.kind]
        place = d.rng.choice(places)
        inputs: list[Out] = [out]
        for other, kind in enumerate(chosen.takes):
            if other == place:
                continue
            twin = self._twin(d, out) if chosen.op in rules.JOINS_BY_KEY and d.chance(_TWINS) else None
            found = twin or self._find(d, chosen, kind, [out], 0)
            if found is None:
                return False
            inputs.insert(other, found)
        before = len(d.steps)
        d.wanted = ""
        self._apply(d, chosen, inputs)
        return len(d.steps) > before

    def _twin(self, d: Draft, out: Out) -> Out | None:
        """Add the operators above a table once more, of topics of their own; None if these cannot be copied.

        Both tables have the same keys, which two windowed tables rarely have by chance. No record changes both: else
        such a join is left out in cases with caches (rules.JOINED_IN_CACHES).
        """
        by_id = {step["id"]: step for step in d.steps}
        above, wanted = [], [out.id]
        while wanted:
            step = by_id[wanted.pop()]
            if step in above:
                continue
            above.append(step)
            wanted += step.get("of", ())
        if any(_NOT_COPIED.search(step["op"]) for step in above):
            return None
        new: dict[str, str] = {}
        for step in [each for each in d.steps if each in above]:
            new[step["id"]] = d.new_id()
            twin = copy.deepcopy(step) | {"id": new[step["id"]]}
            if "of" in twin:
                twin["of"] = [new[each] for each in twin["of"]]
            if "topics" in twin:
                twin["topics"] = [f"twin-{twin['id']}"]
            if "topic" in twin:
                twin["topic"] = f"twin-{twin['id']}"
            if "name" in twin:
                twin["name"] = f"named-{twin['id']}"
            if "name" in twin.get("store", {}):
                twin["store"]["name"] = f"store-{twin['id']}"
            d.steps.append(twin)
        made = replace(out, id=new[out.id])
        d.made.append(made)
        return made

    def _find(self, d: Draft, chosen: Rule, kind: str, inputs: list[Out], depth: int) -> Out | None:
        """Return an input of an operator: one that is there, or a new one that was compared less."""
        fitting = [out for out in d.made if out.kind == kind]
        if chosen.op in _PLAIN_KEYS:
            fitting = [out for out in fitting if out.key == "string"]
        elif inputs and chosen.op in _SAME_KEYS:
            fitting = [out for out in fitting if out.key == inputs[0].key]
            if not fitting and inputs[0].kind == "table" and kind == "stream":
                return self._apply(d, RULES["KTable.toStream"], [inputs[0]])
        there = min(fitting, key=lambda out: self._score(out.label, chosen.op) + d.rng.random() * 3, default=None)
        producers = [
            each
            for each in self._rules
            if kind in _KINDS.get(each.op, (each.gives,))
            and (depth < _DEEPEST or each.op in _SHALLOW)
            and not _apart(each.op, chosen.op)
        ]
        new = min(producers, key=lambda each: self._score(each.op, chosen.op) + d.rng.random() * 3, default=None)
        if new is None or depth > _DEEPEST + 3:
            return there
        if there is None or self._score(new.op, chosen.op) < self._score(there.label, chosen.op):
            made = self._make(d, new, kind, depth + 1)
            if made is not None and (not inputs or chosen.op not in _SAME_KEYS or made.key == inputs[0].key):
                return made
        return there

    def _score(self, first: str, second: str) -> float:
        # Pairs that are drawn and never count, such as those that both sides refuse, do not take all places.
        return self._counts[first, second] + self._drawn[first, second] / 16 + self._failed[first, second] / 40

    def _apply(self, d: Draft, chosen: Rule, inputs: list[Out]) -> Out | None:
        drawn = chosen.draw(d, inputs)
        if drawn is None:
            return None
        parameters, fields = drawn
        step: Step = {"id": d.new_id(), "op": chosen.op}
        if inputs:
            step["of"] = [out.id for out in inputs]
        step |= parameters
        records = volume(step, [out.volume for out in inputs])
        if records > MOST:
            return None
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
        inherited: dict[str, Any] = {
            "volume": records,
            "history": rules.history_of(step, {each["id"]: each for each in d.steps}),
        }
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
            if step["op"].startswith(("StreamsBuilder.", "Topology.")) and topic != "out"
        }
    )


def _input(d: Draft) -> list[Any]:
    rng = d.rng
    topics = _topics(d.steps)
    now = 1000
    made: list[Any] = []
    for _ in range(rng.randrange(14, 32)):
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
    for second in there:
        for first in there:
            kinds = _KINDS.get(first.op, (first.gives,))
            if any(kind in second.takes for kind in kinds) and not _apart(first.op, second.op):
                yield first.op, second.op


def _apart(first: str, second: str) -> bool:
    """Return whether an operator cannot follow another one although the kinds fit."""
    if "Windowed" not in first or second.endswith("emitStrategy"):
        return False
    by_foreign_key = second in _PLAIN_KEYS
    # The original fails; see rules.FAILURES.
    looked_up = "Cogrouped" in first and second in _LOOKUPS
    return by_foreign_key or looked_up


_LOOKUPS = {"KStream.joinTable", "KStream.leftJoinTable", "KTable.join", "KTable.leftJoin", "KTable.outerJoin"}
