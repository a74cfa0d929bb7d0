"""Which topics with an application's prefix are its own: those that its code names, or that its commits prove."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millpond.errors import ConfigError
from millpond.runtime.ownership.presence import presence_group
from millpond.runtime.topics.identity import digest_of
from millpond.topology import is_repartition_topic

__all__ = ("NO_CHOICE", "Choice", "InternalTopics", "internal_topics", "of_commits", "owner_of")

#: The number of sets of changelogs that are compared with the digests of committed offsets.
_MAX_SETS = 20_000


@dataclass(frozen=True)
class Choice:
    """The user's decisions about topics that the code does not name."""

    delete: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()

    def check(self, existing: Collection[str], application_id: str, inputs: Collection[str]) -> None:
        """Check that the topics to delete are internal topics with the application's prefix.

        Raises:
            ConfigError: a topic is not, does not exist, is an input, or is to be kept as well.
        """
        for topic in sorted(self.delete):
            reason = ""
            if topic in self.keep:
                reason = "--keep-topics names it as well"
            elif topic in inputs:
                reason = "it is an input of the application"
            elif not _is_internal(topic, application_id):
                reason = (
                    f"no internal topic of '{application_id}' has such a name: they begin with '{application_id}-' and "
                    "end with '-changelog' or '-repartition'"
                )
            elif topic not in existing:
                reason = "it does not exist"
            if reason:
                raise ConfigError(f"--internal-topics: topic '{topic}' cannot be deleted: {reason}.")


NO_CHOICE = Choice()


@dataclass(frozen=True)
class InternalTopics:
    """The topics with an application's prefix and the form of internal topics."""

    own: tuple[str, ...]
    """The application's: to delete."""
    foreign: Mapping[str, str]
    """Those that are kept, each with the reason, a clause after the topic's name."""
    unclear: tuple[str, ...]
    """Those that may be of a former version of the application, or of another one. They are kept, too."""


def owner_of(topic: str, application_id: str, groups: Iterable[str]) -> str | None:
    """Return the application with the longest id whose prefix a topic has, longer than that of an application.

    Args:
        topic: a topic with the application's prefix.
        application_id: the application.
        groups: all consumer groups, of offsets and of workers' reports; each application has one.
    """
    suffix = presence_group("")
    ids = {group.removesuffix(suffix) for group in groups}
    fitting = [id for id in ids if id.startswith(f"{application_id}-") and topic.startswith(f"{id}-")]
    return max(fitting, key=len, default=None)


def internal_topics(  # noqa: PLR0913 - what is known about topics
    existing: Iterable[str],
    application_id: str,
    groups: Collection[str],
    known: Collection[str] | None,
    *,
    inputs: Collection[str] = (),
    choice: Choice = NO_CHOICE,
    all_groups: bool = True,
    proven: Callable[[Sequence[str]], Collection[str]] = lambda _topics: (),
) -> InternalTopics:
    """Return the internal topics of an application, and similar topics that are not clearly its own.

    A topic of an application ``a-b`` begins with ``a-`` as well, and so does the changelog of the store ``b-c`` of
    ``a``. So without other evidence nothing is deleted that a consumer group with a longer id fits.

    Args:
        existing: all topics.
        application_id: the application.
        groups: all consumer groups.
        known: logical names of the topology's internal topics; None when the topology is not known.
        inputs: the application's inputs, which are never internal.
        choice: the user's decisions.
        all_groups: whether `groups` has the groups of all applications.
        proven: returns those of some changelogs that the application's commits prove to be its own.
    """
    prefix = f"{application_id}-"
    own: list[str] = []
    foreign: dict[str, str] = {}
    rest: list[str] = []
    for topic in sorted(existing):
        if not _is_internal(topic, application_id) or topic in inputs:
            continue
        if topic in choice.delete or (known is not None and topic.removeprefix(prefix) in known):
            own.append(topic)
        elif topic in choice.keep:
            foreign[topic] = "--keep-topics names it"
        else:
            rest.append(topic)
    certain = proven([topic for topic in (*own, *rest) if topic.endswith("-changelog")]) if rest else ()
    unclear: list[str] = []
    for topic in rest:
        if topic in certain:
            own.append(topic)
        elif (other := owner_of(topic, application_id, groups)) is not None:
            foreign[topic] = (
                f"the consumer group '{other}' exists, so it seems to belong to that application. If it is of a former "
                f"version of {application_id}, delete it by --internal-topics {topic}"
            )
        elif known is None and all_groups:
            own.append(topic)
        else:
            unclear.append(topic)
    return InternalTopics(tuple(sorted(own)), foreign, tuple(unclear))


def of_commits(ids: Mapping[str, str], digests: Collection[str]) -> set[str]:
    """Return the changelogs of which committed offsets have a digest, which proves whose they are.

    Args:
        ids: the id of each changelog that may be one of the application, by topic; empty if brokers report none.
        digests: the digests in the metadata of the application's committed offsets.
    """
    found: set[str] = set()
    sets = itertools.chain.from_iterable(itertools.combinations(ids, size) for size in range(1, len(ids) + 1))
    for topics in itertools.islice(sets, _MAX_SETS):
        if digest_of(ids[topic] for topic in topics) in digests:
            found.update(topics)
    return found


def _is_internal(topic: str, application_id: str) -> bool:
    return topic.startswith(f"{application_id}-") and (topic.endswith("-changelog") or is_repartition_topic(topic))
