"""`millpond settings`: the reference of settings, on the terminal or as a page of the documentation."""

from __future__ import annotations

import click
from rich.padding import Padding
from rich.text import Text

from millpond.runtime.config.settings import Setting, settings
from millpond.runtime.config.sources import variable_for

from .session import Session

__all__ = ("command", "markdown")


@click.command("settings", short_help="List the settings, with their defaults.")
@click.argument("word", required=False, default="")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the page docs/configuration.md.")
@click.pass_obj
def command(session: Session, word: str, *, as_markdown: bool) -> None:
    """List the settings whose name or description contains WORD, or all of them."""
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    found = [one for one in settings() if word.lower() in f"{one.key} {one.doc}".lower()]
    if not found:
        raise click.UsageError(f"no setting's name or description contains '{word}'.")
    for one in found:
        default = one.default or ("required" if one.required else "not set")
        session.out.print(Text(one.key, style="bold").append(f"  {default}", style="not bold dim"))
        session.out.print(Padding(one.doc.replace("`", ""), (0, 0, 0, 4), expand=False))  # a pipe has no edge


_HEAD = """# Configuration

<!-- Written by `millpond settings --markdown`; edit the descriptions in worker/millpond/runtime/config/settings.py. -->

Settings that Kafka Streams has too have the same names. A setting can be given in several places; the later one in this
list wins:

1. its default;
2. a TOML file: `--config FILE`, or `$MILLPOND_CONFIG`, or `millpond.toml` in the current directory;
3. `$MILLPOND_CONFIG_INLINE`: a JSON object of settings, for workers that get nothing but an environment; on Kubernetes
   it is `spec.config` of the StreamApp;
4. the environment: `commit.interval.ms` is `MILLPOND_COMMIT_INTERVAL_MS`; an empty variable counts as not set;
5. the files in `credentials.dir`, for properties of the Kafka clients;
6. the command line: `--processing-guarantee exactly_once`, or `--set KEY=VALUE` for every setting; in a program, the
   arguments of `Config.of`, where `commit.interval.ms` is `commit_interval_ms`.

```toml
application.id = "delays"
bootstrap.servers = "kafka:9092"
processing.guarantee = "exactly_once"
commit.interval.ms = "50ms"

[consumer]
fetch.min.bytes = 1
```

Durations whose name ends in `.ms` take milliseconds, or a text with a unit: `100ms`, `5s`, `2m`, `1h`, `1d`; with a
unit the `.ms` may be left out. Sizes take bytes or a text such as `64MiB`. An unknown setting or a wrong value stops
the program; the message has the setting, where it was given, and the nearest right name.

## Settings

| setting | default | environment |
|---|---|---|
"""

_TAIL = """
## Kafka clients

Properties of [librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md), the library below
the clients, are passed on: with the prefix `consumer.`, `producer.` or `admin.` to that client; without a prefix to
every client that has them, so `security.protocol` and `sasl.mechanism` are written once. The prefixed one wins. Names
of the Java clients are translated if librdkafka has the property under another name; others are rejected, with the
nearest one.

Properties that the guarantees depend on cannot be set: `group.id`, `transactional.id`, `isolation.level`,
`enable.auto.commit`, `enable.idempotence`, `acks`, `partitioner` and a few more. The error says why.

Topic configuration for internal topics has the prefix `topic.`, as in `topic.min.insync.replicas`. When a topic is
created, it replaces millpond's defaults, also those of repartition topics (`topic.segment.bytes`,
`topic.retention.ms`). Repartition topics are never compacted and keep event time, and the changelog of a window store
is kept at least as long as its windows. An application's own settings have the prefix `app.`; its processors read them
from their context.

## Secrets

Passwords, keys, tokens and the like (`sasl.password`, `ssl.key.password`, `basic.auth.user.info`, `*.secret`, …) and
everything in `credentials.dir` are shown as `[hidden]` wherever they are printed, logged or dumped. Give them in
`credentials.dir`, in the environment, or in a file that only the application can read: every user of the machine sees
command lines.

## When a worker ends

With `$MILLPOND_TERMINATION_LOG`, a command that fails writes one line of JSON into that file: `reason`, the kind of
error (`TopicError`, `BrokerError`, `ConfigError`, …), and `message`, which it also prints. Kubernetes shows such a file
as the reason why a container ended.
"""


def markdown() -> str:
    """Return the page ``docs/configuration.md``."""
    rows = "".join(f"| `{one.key}` | {_default(one)} | `{variable_for(one.key)}` |\n" for one in settings())
    sections = "".join(f"\n### {one.key}\n\n{one.doc} {_sentence(one)}\n" for one in settings())
    return _HEAD + rows + sections + _TAIL


def _default(one: Setting) -> str:
    if one.required:
        return "*required*"
    return f"`{one.default}`" if one.default else ""


def _sentence(one: Setting) -> str:
    if one.required:
        return "Required."
    return f"Default: `{one.default}`." if one.default else "Not set by default."
