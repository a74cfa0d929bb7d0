"""The options about the formats of keys and values, and the coders that they choose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from millpond.cli.application import attribute_name, load_topology
from millpond.durations import Duration
from millpond.errors import ConfigError
from millpond.serdes import Serde

from .application_coders import Coders, coders_of_topic, with_dead_letters, with_windows
from .broker import Place
from .coders import FORMATS, named, of_serde, serde_named
from .window_hints import checked

__all__ = ("format_options",)

_SESSIONS = "session"


def format_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about formats to a command, which gets a function (place, topic) -> coders as `coders`."""

    @click.option("--key", "key_format", type=click.Choice(FORMATS), help="The format of keys. Default: auto.")
    @click.option("--value", "value_format", type=click.Choice(FORMATS), help="The format of values. Default: auto.")
    @click.option("--window", metavar="SIZE", help="Keys are in windows: of this size, such as 1h, or `session`.")
    @click.option("--application", metavar="MODULE:ATTRIBUTE", help="Take the formats from this application's serdes.")
    @click.option(
        "--registry",
        metavar="URL",
        help="The schema registry of avro, protobuf and jsonschema. Default: $SCHEMA_REGISTRY_URL.",
    )
    @click.option(
        "--value-schema", metavar="FILE", type=click.Path(path_type=Path),
        help="To write avro or jsonschema: the schema of the values. Default: the subject's newest one.",
    )  # fmt: skip
    @functools.wraps(function)
    def with_formats(  # noqa: PLR0913 - one parameter per option
        key_format: str | None,
        value_format: str | None,
        window: str | None,
        application: str | None,
        registry: str | None,
        value_schema: Path | None,
        **arguments: Any,
    ) -> Any:
        if application is not None and (key_format or value_format or window):
            raise click.UsageError(
                "--application gives the formats: leave out --key, --value and --window, or --application."
            )

        if value_schema is not None and value_format not in ("avro", "jsonschema"):
            raise click.UsageError("--value-schema is for --value avro and jsonschema: give both, or leave it out.")

        def coders(place: Place, topic: str, *, reading: bool = False) -> Coders:
            if application is not None:
                return _of_application(application, place, topic, reading=reading)
            key = named(key_format or "auto", topic, is_key=True, registry=registry)
            if window is not None:
                key = of_serde(with_windows(_inner(key_format), _size(window), topic), is_key=True)
                if key_format in (None, "auto", "string"):  # other formats may have bytes that look like times
                    key = checked(key, window, topic)
            value = named(value_format or "auto", topic, is_key=False, registry=registry, schema=value_schema)
            return Coders(key, value)

        return function(coders=coders, **arguments)

    return with_formats


def _of_application(target: str, place: Place, topic: str, *, reading: bool) -> Coders:
    config = place.config
    topology = load_topology(target, config.topology_optimization)
    if not config.application_id:
        config = replace(config, application_id=attribute_name(target))  # as `millpond dev` calls it
    if reading:
        return with_dead_letters(lambda name: coders_of_topic(topology, config, name), topic)
    return coders_of_topic(topology, config, topic)


def _inner(name: str | None) -> Serde[Any]:
    serde = serde_named(name or "string")
    if serde is None:
        raise ConfigError(f"--window needs a format of keys other than {name}: give --key string, long or another one.")
    return serde


def _size(text: str) -> Duration | None:
    if text == _SESSIONS:
        return None
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise click.UsageError(f"--window: {error}, or `{_SESSIONS}`.") from None
