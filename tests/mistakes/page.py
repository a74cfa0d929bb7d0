"""The page of errors, written from the table of mistakes."""

from __future__ import annotations

from pathlib import Path

from tests.mistakes.table import MANIFEST, MISTAKES, PRELUDE, Mistake, Moment

__all__ = ("PAGE", "page")

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"

_HEAD = """\
# Errors and their cures

Mistakes that new users make, what millpond says about each, and when. A test makes each of them and compares the words.
The code follows these lines, unless it makes its own builder:

```text
{prelude}```

A message that is not here has its cause and its cure in its own words. A log line has the level `WARNING`.
[Failure modes](failure-modes.md) says what happens when a part fails, [Monitoring](monitoring.md) has the metrics.
"""

_MOMENTS = {
    Moment.IMPORT: ("When the module is imported", "Python runs the module, before anything of millpond starts."),
    Moment.BUILD: (
        "When the topology is built",
        "Each operator checks its arguments in its call, and `build()` the rest: no broker is needed, and no record.",
    ),
    Moment.START: (
        "When the application starts",
        "A worker, or a `TopologyTestDriver`, has the topology and the configuration, and has processed no record.",
    ),
    Moment.BROKER: (
        "When a worker meets the broker",
        "Topics and their partitions, other workers, and the state of the application are checked before a record is "
        "processed, and the first records. The `application.id` is `shop`.",
    ),
    Moment.FIRST_RECORD: (
        "With the first record",
        "The offset of a record that fails is not committed: after the mistake is corrected, it is processed again.",
    ),
    Moment.COMMAND_LINE: ("On the command line", "`millpond` ends with status 1 or 2, and one line on standard error."),
    Moment.APPLY: (
        "When a StreamApp is applied",
        "[`millpond check streamapp.yaml`](guides/deploying.md#how-do-i-know-that-a-cluster-will-take-it) finds them "
        "before, in the same words, with file and line. "
        "The API server rejects it, and the application that runs stays as it is. `kubectl apply` says `Error from "
        "server`, what is wrong, and more if other rules could not be checked. The objects are this one, with other "
        f"lines (`null`: without this one):\n\n```text\n{MANIFEST}```\n\nA setting with a typo in "
        "`spec.config` is accepted there, and the worker ends, as [on the command line]"
        "(#a-setting-with-a-typo-in-the-configuration-of-a-streamapp).",
    ),
}

_SCENES = {
    "after another worker": "Worker `w0` ran the application and stopped; worker `w1` starts.",
    "while it runs": "The application runs, and is started a second time on the same machine.",
    "reset while it runs": "The application runs, and `millpond reset --dry-run` is called.",
    "after a change": "",
    "a file in place of the state directory": "`state.dir` is a file.",
    "another partitioner": "`views` is written with librdkafka's default partitioner, `users` with Kafka's.",
    "after another application": "Another application with this `application.id` has a store `counts` in 6 partitions.",
}


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD.format(prelude=PRELUDE)]
    for moment, (heading, text) in _MOMENTS.items():
        parts.append(f"\n## {heading}\n\n{text}\n")
        parts += [_section(mistake) for mistake in MISTAKES if mistake.moment is moment]
    return "".join(parts)


def _section(mistake: Mistake) -> str:
    lines = [f"\n### {mistake.title}\n"]
    if mistake.before:
        lines.append(f"\n```text\n{mistake.before.strip()}\n```\n\nran, and then the application was changed to\n")
    lines.append(f"\n```text\n{(mistake.code or mistake.command or mistake.manifest).strip()}\n```\n")
    for name, text in mistake.files.items():
        lines.append(f"\nwith `{name}`\n\n```text\n{text.strip()}\n```\n")
    if mistake.environment:
        shown = ", ".join(f"`{name}={value}`" for name, value in mistake.environment.items())
        lines.append(f"\nThe environment has {shown}.\n")
    if len(mistake.topics) > 1:
        shown = ", ".join(f"`{topic}` with {count}" for topic, count in mistake.topics.items() if count)
        lines.append(f"\nTopics, with their partitions: {shown}.\n")
    if _SCENES.get(mistake.scene):
        lines.append(f"\n{_SCENES[mistake.scene]}\n")
    if mistake.settings:
        shown = ", ".join(f"`{key} = {value}`" for key, value in mistake.settings.items())
        lines.append(f"\nThe configuration has {shown}.\n")
    if mistake.records:
        lines.append(f"\nRecords of `{mistake.topic}`, as key, value and timestamp: `{mistake.records}`.\n")
    lines.append("\n" + "".join(f"> {line}\n" for line in mistake.says.splitlines()))
    if mistake.note:
        lines.append(f"\n{mistake.note}\n")
    return "".join(lines)
