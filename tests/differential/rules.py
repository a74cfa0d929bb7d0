"""The differences from Kafka Streams that are meant, each with its reason.

A rule brings both answers into a form in which they are equal if they differ in nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Answer = dict[str, Any]
Case = dict[str, Any]

_EXTRACTOR = re.compile(r"\(extractor class: .*\)$", re.MULTILINE)


_INCLUSIVE = {"session": {"gap": 1, "grace": 0}, "sliding": {"difference": 1, "grace": 1}}
"""Which durations of windows with an inclusive end are odd, so that they close at odd times."""

_OUTER = re.compile("-(OUTERSHARED-[0-9]{10}-store|outer-shared-join-store|left-shared-join-store)-changelog$")


@dataclass(frozen=True)
class Rule:
    """A difference that is meant."""

    name: str
    reason: str
    apply: Callable[[Case, Answer], None]
    """Changes an answer, of either side."""


RULES: list[Rule] = []


def _rule(name: str, reason: str) -> Callable[[Callable[[Case, Answer], None]], None]:
    def add(apply: Callable[[Case, Answer], None]) -> None:
        RULES.append(Rule(name, reason, apply))

    return add


@_rule(
    "names of classes in describe()",
    "A topic name extractor is shown by its class in Java and by its name in Python.",
)
def _extractors(case: Case, answer: Answer) -> None:
    answer["describe"] = _EXTRACTOR.sub("(extractor class: one of the case's)", answer["describe"])


@_rule(
    "records that a versioned store rejects",
    "Kafka Streams also writes a put to the changelog that the store rejects, since its time is further behind than "
    "the store keeps history. millpond writes what the store has. Both restore the same rows.",
)
def _rejected_versions(case: Case, answer: Answer) -> None:
    kept = {step["name"]: step["retention"] for step in case["steps"] if step.get("kind") == "versioned"}
    stores = (step["store"] for step in case["steps"] if "versioned" in step.get("store", {}))
    kept |= {store["name"]: store["versioned"] for store in stores if "name" in store}
    newest: dict[str, int] = {}
    for topics in answer.get("outputs", ()):
        for name, kept_ms in kept.items():
            topic = f"app-{name}-changelog"
            accepted = []
            for row in topics.get(topic, ()):
                newest[topic] = max(newest.get(topic, 0), row[2])
                if row[2] >= newest[topic] - kept_ms:
                    accepted.append(row)
            if accepted:
                topics[topic] = accepted
            else:
                topics.pop(topic, None)


@_rule(
    "one changelog record per key and commit",
    "Kafka Streams writes each put of a store to its changelog at once. millpond writes the last put of a key when it "
    "commits, so a changelog has the same last record of each key at each commit.",
)
def _changelogs(case: Case, answer: Answer) -> None:
    for topics in answer.get("outputs", ()):
        for topic in topics:
            if topic.endswith("-changelog"):
                topics[topic] = sorted({row[0]: row for row in topics[topic]}.values(), key=lambda row: row[0] or "")


@_rule(
    "deletions of records that do not wait for a partner",
    "A left or outer join of streams keeps records that have no partner yet. When one gets a partner, Kafka Streams "
    "writes a deletion to the changelog even if the record is not kept. millpond deletes what is there.",
)
def _unmatched(case: Case, answer: Answer) -> None:
    there: set[tuple[str, str]] = set()
    for topics in answer.get("outputs", ()):
        for topic in list(topics):
            if not _OUTER.search(topic):
                continue
            kept = []
            for row in topics[topic]:
                place = (topic, row[0])
                if row[1] is not None or place in there:
                    kept.append(row)
                (there.discard if row[1] is None else there.add)(place)
            if kept:
                topics[topic] = kept
            else:
                del topics[topic]


@_rule(
    "time of a buffer's changelog records",
    "Kafka Streams leaves the timestamp of what suppress() and joins with a grace period log to the producer, which "
    "takes the time of day. millpond writes the time of the held record, so that a changelog does not depend on when "
    "it was written.",
)
def _buffers(case: Case, answer: Answer) -> None:
    held = [step for step in case["steps"] if step["op"] == "KTable.suppress" and "name" in step]
    named = {f"app-{step['name']}-store-changelog" for step in held}
    for topics in answer.get("outputs", ()):
        for topic, rows in topics.items():
            if topic in named or "KTABLE-SUPPRESS-STATE-STORE-" in topic or topic.endswith("-Buffer-changelog"):
                topics[topic] = [[*row[:2], None, *row[3:]] for row in rows]


FIRST_AGGREGATE = (
    "first aggregate of a key or of a sliding window, uncached",
    "A store without a cache sends the initializer's value as the old value of a key's first aggregate in Kafka "
    "Streams, and with a cache it sends none. millpond sends none in both cases (docs/differences.md).",
)
"""This rule cannot be applied to answers, since what follows from the old value is not known from them. Where something
reads old values, generated aggregations begin with null, for which both sides send no old value, and counts are cached.
"""

_OLD_VALUES = {
    "KTable.filter",
    "KTable.filterNot",
    "KTable.groupBy",
    "KTable.suppress",
    "KTable.join",
    "KTable.leftJoin",
    "KTable.outerJoin",
    "KTable.joinForeign",
    "KTable.leftJoinForeign",
}


EXPIRED_IN_CACHE = (
    "windows that have expired, in a cache",
    "With a cache, Kafka Streams may still find a window that has expired in its store, as long as the cache happens "
    "to have it. millpond does not find it (docs/differences.md).",
)
"""Generated cases with caches keep windows for so long that none expires. `tests/state/test_final_sessions.py` compares
sessions that expire in a cache with those of a store without one, which generated cases compare with the original."""

JOINED_IN_CACHES = (
    "joins of tables that change in one commit, in caches",
    "With caches, each side of a join reads the newest value of the other table in Kafka Streams, forwarded or not. In "
    "millpond it reads what the other table has forwarded (docs/differences.md).",
)
"""Generated cases with caches join no two tables of which one record changes both.
`tests/dsl/table_joins/test_joins_of_caches.py` compares such joins with those of the final tables."""

OUTDATED_ANSWERS = (
    "outdated answers without a value, in inner joins by a foreign key",
    "An inner join by a foreign key drops an answer to an earlier value of the left row. In Kafka Streams the result "
    "may keep a row whose partner is gone. In millpond the row asks once more (docs/differences.md).",
)
"""One record may change a left row twice, as an aggregation of a table does that subtracts and adds. What is sent from
the first such answer on is not compared: an answer of millpond has the number of its input record as `meant_from`.
`tests/dsl/table_joins/test_foreign_keys_in_races.py` compares such joins with those of the final tables."""

JOINS_BY_KEY = {"KTable.join", "KTable.leftJoin", "KTable.outerJoin"}
_LONG_MS = 1_000_000


LOST_WINDOWS = (
    "final results of windows that left the retention",
    "Kafka Streams never sends closed windows that have left the retention of their store since it last looked for "
    "them. millpond sends every window (docs/differences.md).",
)
"""Generated cases give such stores a retention that no input outlasts."""

SENT_SOONER = (
    "records without a partner when memory is short",
    "A left or outer join of streams remembers the time of a waiting record, up to which it looks for none to send, "
    "and which may be later than that of the oldest. When the oldest are only on disk, millpond sends each with "
    "the first record beyond its window (docs/differences.md).",
)
"""Cases under pressure read all waiting records back before this time is taken."""

PROCESSORS_ABOVE_TOPICS = (
    "repartition topics below processors",
    "The rewrite merge.repartition.topics of Kafka Streams 4.1 moves a repartition topic to above process(), which may "
    "change keys. millpond leaves it below (docs/differences.md).",
)
"""Generated cases with processors are not given this rewrite."""

UNMERGED = (
    "repartition topics that only some records would pass",
    "The rewrite merge.repartition.topics of Kafka Streams 4.1 may move a topic to where records with other changed "
    "keys do not pass it, so that they reach the task of another key. millpond leaves it (docs/differences.md).",
)
"""Such topologies are not compared: an answer of millpond has the names of these topics as `unmerged`."""

COGROUPED_TWICE = (
    "a grouped stream in a cogroup twice",
    "Kafka Streams replaces the aggregator of a stream that is given to cogroup() again. millpond rejects it, since "
    "the first aggregator would never be called (docs/differences.md).",
)
"""Generated cases have no such cogroup."""

MOMENTS_OF_CLOSING = (
    "sessions and sliding windows, at the millisecond in which stream time reaches their end plus grace",
    "Both take records until stream time has passed it. Kafka Streams has lost such a session from its store by then, "
    "and suppress() has sent the window, and sends it again. millpond keeps and holds it (docs/differences.md).",
)
"""In generated cases with such windows, the times of the input are even and the moments of closing odd. Where operators
make other times, `noticing.py` notices a session at its moment of closing, also of suppress(), whose changelog then has
a deletion in Kafka Streams only; as with outdated answers, what is sent from such a record on is not compared.
`tests/state/test_final_sessions.py` and `tests/dsl/test_moments_of_closing.py` compare with sums of the records."""

CLOSED_SESSIONS = (
    "closed sessions that are kept",
    "With a longer retention, Kafka Streams merges a late record's session with one that has closed, and that may have "
    "been sent as a final result. In millpond no record joins a closed session (docs/differences.md).",
)
"""As with outdated answers, what is sent from such a record on is not compared.
`tests/dsl/test_moments_of_closing.py` compares final results with sums of the records."""

_WINDOWED = re.compile("(Time|Session)Windowed.*[.](count|reduce|aggregate)$")


def history_of(step: dict[str, Any], by_id: dict[str, Any]) -> int:
    """Return how long the table of a step keeps old values, in ms; 0 if it is not versioned."""
    if "store" in step:
        return int(step["store"].get("versioned", 0))
    views = ("KTable.filter", "KTable.filterNot", "KTable.mapValues", "KTable.transformValues")
    return history_of(by_id[step["of"][0]], by_id) if step["op"] in views else 0


def _avoid_graces_without_history(case: Case) -> None:
    """Remove the grace periods of joins whose table is not versioned any more."""
    by_id = {step["id"]: step for step in case["steps"]}
    for step in case["steps"]:
        if "grace" in step and not history_of(by_id[step["of"][1]], by_id):
            del step["grace"]


MERGED_WITH_ITSELF = (
    "a stream with other keys that is merged with what was made of it, with merge.repartition.topics",
    "Kafka Streams moves the repartition topic above one input of the merge only, and takes the merged stream for "
    "repartitioned, so that records of a key come to two tasks. millpond repartitions the merged stream.",
)
"""Generated cases have no merge together with this optimization."""

MERGED_IN_A_COGROUP = (
    "a cogroup of several repartitioned streams, with merge.repartition.topics",
    "Kafka Streams merges the topics of two groups of one cogroup, which have one name. millpond refuses the cogroup "
    "when it is called, before it knows of the optimization, and asks for names.",
)
"""Generated cases have no cogroup of several streams together with this optimization."""


def avoid(case: Case) -> None:
    """Change a generated case so that what cannot be a rule about answers does not show."""
    _avoid_first_aggregates(case)
    _avoid_graces_without_history(case)
    _avoid_moments_of_closing(case)
    _name_groups_of_cogroups(case)
    cached = "statestore.cache.max.bytes" not in case["config"]
    _avoid_joins_in_caches(case, cached=cached)
    by_id = {step["id"]: step for step in case["steps"]}
    for step in case["steps"]:
        if _WINDOWED.match(step["op"]):
            if _windows_of(step, by_id)["type"] == "unlimited":
                step.get("store", {}).pop("retention", None)
            elif cached:
                step.setdefault("store", {})["retention"] = _LONG_MS


def _avoid_first_aggregates(case: Case) -> None:
    by_id = {step["id"]: step for step in case["steps"]}
    for step in case["steps"]:
        if step["op"] in _OLD_VALUES or (step["op"].startswith("KTable.") and "store" in step):
            for above in _above(step, by_id):
                if "initial" in above:
                    above["initial"] = "null"
                sliding = _WINDOWED.match(above["op"]) and _windows_of(above, by_id)["type"] == "sliding"
                if above["op"].endswith("Stream.count") or sliding:
                    case["config"].pop("statestore.cache.max.bytes", None)
                    above.get("store", {}).pop("caching", None)
                    above.get("store", {}).pop("versioned", None)


def _avoid_moments_of_closing(case: Case) -> None:
    inclusive = [step["windows"] for step in case["steps"] if step.get("windows", {}).get("type") in _INCLUSIVE]
    for windows in inclusive:
        for field, odd in _INCLUSIVE[windows["type"]].items():
            windows[field] = windows[field] // 2 * 2 + odd
    if inclusive:
        for each in case["input"]:
            if isinstance(each, list):
                each[3] = each[3] // 2 * 2


def _avoid_joins_in_caches(case: Case, *, cached: bool) -> None:
    """Map one of two cached tables that are made from one topic, in place of joining both."""
    by_id = {step["id"]: step for step in case["steps"]}
    for step in case["steps"]:
        if step["op"] not in JOINS_BY_KEY:
            continue
        left, right = (_roots(by_id[each], by_id) for each in step["of"])
        if cached and left & right:
            del step["joiner"]
            step.update(op="KTable.mapValues", of=step["of"][:1], keyed="glue")


def _roots(step: dict[str, Any], by_id: dict[str, Any]) -> set[str]:
    """Return the topics of which a step is made. A cogroup may be made of its own aggregations."""
    found: set[str] = set()
    seen = {step["id"]}
    ahead = [step]
    while ahead:
        each = ahead.pop()
        of = [*each.get("of", ()), *_added(each["id"], by_id)]
        if not of:
            found.update(each.get("topics") or [each.get("topic", each["id"])])
        ahead += [by_id[above] for above in set(of) - seen]
        seen.update(of)
    return found


def _added(cogroup: str, by_id: dict[str, Any]) -> Iterator[str]:
    """Yield the groups that are added to a cogroup, which its aggregations read, wherever they are in the case."""
    for step in by_id.values():
        if step["op"] == "CogroupedKStream.cogroup" and step["of"][0] == cogroup:
            yield step["of"][1]
            yield from _added(step["id"], by_id)


def _name_groups_of_cogroups(case: Case) -> None:
    """Name groups that are added to a cogroup, since both sides refuse two repartition topics of one name."""
    by_id = {step["id"]: step for step in case["steps"]}
    for step in case["steps"]:
        if step["op"] == "CogroupedKStream.cogroup":
            group = step["of"][1]
            if sum(group in other.get("of", ()) for other in case["steps"]) == 1:
                by_id[group].setdefault("name", f"group-{group}")


def _windows_of(step: dict[str, Any], by_id: dict[str, Any]) -> dict[str, Any]:
    while "windows" not in step:
        step = by_id[step["of"][0]]
    return step["windows"]


def _above(step: dict[str, Any], by_id: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for each in step.get("of", ()):
        parent = by_id[each]
        found.append(parent)
        if parent["op"].startswith("KTable."):
            found += _above(parent, by_id)
    return found


@_rule(
    "records that a store of windows rejects are not counted",
    "Kafka Streams counts as dropped a put that is older than the retention of a store of windows or sessions. "
    "millpond counts records that operators drop, and such a record was processed.",
)
def _rejected(case: Case, answer: Answer) -> None:
    if any("windows" in step or step.get("kind") in ("window", "session", "versioned") for step in case["steps"]):
        answer.pop("dropped", None)


@_rule(
    "how long sessions are kept",
    "The store of sessions keeps them 1 ms longer than in Kafka Streams, where it loses them while they are still open "
    "(docs/differences.md), and so does its changelog.",
)
def _sessions_kept(case: Case, answer: Answer) -> None:
    if any(step.get("windows", {}).get("type") == "session" for step in case["steps"]):
        for config in answer.get("internal", {}).values():
            config.pop("retention.ms", None)


FAILURES = {
    "Found a null keyChangingChild node": (
        "With merge.repartition.topics, Kafka Streams cannot build a topology in which two repartition topics are "
        "below one child of an operator that changes keys. millpond merges them."
    ),
    "KTable source state store must implement either TimestampedKeyValueStore or VersionedKeyValueStore": (
        "Kafka Streams cannot join a table of cogrouped sessions: it fails when the task starts. millpond joins it as "
        "a table of the sessions of one stream."
    ),
    '"windowBeingProcessed.value" is null': (
        "With a cache, Kafka Streams still finds a sliding window whose aggregate became null, and fails. millpond "
        "does not find a window that was deleted."
    ),
    "java.lang.NullPointerException: key cannot be null": (
        "A left join with a grace period looks up the null key of a record, and fails. millpond joins it with no row, "
        "as the join without a grace period does in both."
    ),
    r"-repartition-filter, .*ClassCastException: class java\.lang\.\w+ cannot be cast to class java\.lang\.String": (
        "With merge.repartition.topics, a topic that moves to above a join of a global table has the default serde in "
        "Kafka Streams, if no other topic that it replaces has one. millpond takes that of the stream above."
    ),
}
"""What Kafka Streams says where it fails and millpond does not, as regular expressions, and the reason."""


def is_meant(failure: str) -> bool:
    """Return whether only the original is to fail in this way."""
    return any(re.search(text, failure) for text in FAILURES)
