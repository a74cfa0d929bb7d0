"""The client of a schema registry. Its errors distinguish rejected data from a registry that cannot be used."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID
from weakref import WeakValueDictionary

from millpond.errors import BrokerError, ConfigError, SerializationError

from .asking import Asking, Retries

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

__all__ = (
    "Reference",
    "RegisteredSchema",
    "SchemaRegistry",
    "SubjectName",
    "record_name",
    "topic_name",
    "topic_record_name",
)

T = TypeVar("T")

SubjectName = Callable[[str, bool, str | None], str]
"""f(topic, is key, record name) -> subject. The record name is None if the schema has none."""

_TIMEOUT_SECONDS = 10
_SERIALIZED = "serialized"
_FORBIDDEN = {401, 403, 407}
_BUSY = {408, 429}
_MOCK = "mock://"
_mocks: WeakValueDictionary[str, SchemaRegistryClient] = WeakValueDictionary()
"""The registries inside this process, by address, as long as an object uses them."""
_sharing = threading.Lock()


def topic_name(topic: str, is_key: bool, record: str | None) -> str:  # noqa: FBT001 - positional, as in Kafka's serializers
    """Return the subject ``<topic>-key`` or ``<topic>-value``: one schema per topic. The default."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record: str | None) -> str:  # noqa: FBT001 - positional, as in Kafka's serializers
    """Return the subject ``<record>``: one schema per record type, in all topics.

    Raises:
        SerializationError: the schema has no record name.
    """
    if record is None:
        raise SerializationError("record_name needs a schema that has a record name; use topic_name")
    return record


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:  # noqa: FBT001 - positional, as in Kafka's serializers
    """Return the subject ``<topic>-<record>``: several record types in one topic.

    Raises:
        SerializationError: the schema has no record name.
    """
    return f"{topic}-{record_name(topic, is_key, record)}"


class Reference(NamedTuple):
    """Another schema that a schema uses by `name`: one version of a subject."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema in the registry."""

    id: int
    text: str
    references: tuple[Reference, ...]
    version: int | None = None


class SchemaRegistry:
    """A Confluent Schema Registry.

    Args:
        url: its address, or several separated by commas; default: ``$SCHEMA_REGISTRY_URL``, which the
            `millpond` command sets from the setting ``schema.registry.url``. ``mock://name`` is a
            registry inside this process, for tests: the same for all objects of this name that exist at one time.
        settings: properties of Confluent's client, such as ``{"basic.auth.user.info": "user:password"}`` or
            ``{"ssl.ca.location": "ca.pem"}``.

    Raises:
        ConfigError: the address is missing, a setting is unknown, or the extra is not installed.
    """

    def __init__(self, url: str | None = None, settings: dict[str, object] | None = None) -> None:
        address = url or os.environ.get("SCHEMA_REGISTRY_URL")
        if not address:
            raise ConfigError(
                "the schema registry has no address; give SchemaRegistry a url, or set 'schema.registry.url' in "
                "millpond.toml, or SCHEMA_REGISTRY_URL. `millpond dev --registry` starts one for development. "
                "SCHEMA_REGISTRY_URL=mock://check is enough for `millpond topology`, `millpond check` and tests."
            )
        self._shown = ",".join(map(_without_credentials, address.split(",")))
        given = settings or {}
        self._asking = Asking(repr(self), Retries.of(given), _may_pass)
        self._client = _client({"timeout": _TIMEOUT_SECONDS, **given, "url": address, "max.retries": 0})
        self._by_id: dict[tuple[int | UUID, bool], RegisteredSchema] = {}

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._shown})"

    def close(self) -> None:
        """Close the connections. A later call opens them again; cached schemas stay."""
        self._client.close()

    def register(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> RegisteredSchema:
        """Return the registration of a schema under a subject; register the schema if it is not registered.

        Raises:
            SerializationError: the registry rejects the schema, for instance as incompatible with an earlier version.
            BrokerError: the registry cannot be reached, rejects the credentials, or has an internal error.
        """

        def registered() -> RegisteredSchema:
            schema_id = self._client.register_schema(subject, _schema(kind, text, references))
            return RegisteredSchema(schema_id, text, tuple(references))

        return self._ask(registered, f"the {kind} schema of subject '{subject}' cannot be registered")

    def lookup(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> RegisteredSchema:
        """Return the registration of a schema under a subject, which must exist. Errors are those of `register`."""

        def found() -> RegisteredSchema:
            known = self._client.lookup_schema(subject, _schema(kind, text, references))
            return RegisteredSchema(known.schema_id or 0, text, tuple(references), known.version)

        return self._ask(found, f"subject '{subject}' has no such {kind} schema")

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject. Errors are those of `register`."""

        def newest() -> RegisteredSchema:
            found = self._client.get_latest_version(subject)
            return _registered(found.schema_id or 0, found.schema, found.version)

        return self._ask(newest, f"subject '{subject}' has no schema")

    def version(self, subject: str, version: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return one version of a subject's schema; see `by_id` for `serialized`. Errors are those of `register`."""

        def of_version() -> RegisteredSchema:
            found = self._client.get_version(subject, version, fmt=_SERIALIZED if serialized else None)
            return _registered(found.schema_id or 0, found.schema, found.version)

        return self._ask(of_version, f"subject '{subject}' has no schema in version {version}")

    def by_id(self, schema_id: int | UUID, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id, from the cache after the first call. Errors are those of `register`.

        Args:
            schema_id: the id, or the GUID.
            serialized: whether the text of a Protobuf schema is the base64 of its file descriptor, not its source.
        """
        known = self._by_id.get((schema_id, serialized))
        if known is None:
            fmt = _SERIALIZED if serialized else None

            def found() -> Schema:
                if isinstance(schema_id, UUID):
                    return self._client.get_schema_by_guid(str(schema_id), fmt=fmt)
                return self._client.get_schema(schema_id, fmt=fmt)

            schema = self._ask(
                found, f"schema {schema_id} does not exist; if the registry lost its schemas, restore them"
            )
            number = 0 if isinstance(schema_id, UUID) else schema_id
            known = self._by_id[schema_id, serialized] = _registered(number, schema, None)
        return known

    def _ask(self, request: Callable[[], T], rejection: str) -> T:
        """Return the answer to a request, which is sent again if the registry cannot be used; see `Asking`."""
        return self._asking.ask(lambda: self._send(request, rejection))

    def _send(self, request: Callable[[], T], rejection: str) -> T:
        """Raise SerializationError if the registry rejects the data, and BrokerError if it cannot be used."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            if error.http_status_code >= 500 or error.http_status_code in _FORBIDDEN | _BUSY:
                raise BrokerError(f"{self} cannot be used now: {error}") from error
            raise SerializationError(f"{rejection}: {error}") from error
        except (SerializationError, BrokerError):
            raise
        except Exception as error:
            raise BrokerError(
                f"{self} cannot be reached ({type(error).__name__}: {error}). Check its address, and that it runs."
            ) from error


def _may_pass(error: BrokerError) -> bool:
    """Return whether another attempt may succeed: a registry that rejects the credentials continues to do so."""
    return getattr(error.__cause__, "http_status_code", None) not in _FORBIDDEN


def _client(settings: dict[str, object]) -> SchemaRegistryClient:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client's dependencies warn about each other
            from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            "serdes with a schema registry need one of the extras avro, protobuf or jsonschema, as in "
            f"pip install 'millpond[avro]' ({error})."
        ) from error
    address = str(settings["url"])
    try:
        client: SchemaRegistryClient = SchemaRegistryClient.new_client(settings)
        if address.startswith(_MOCK):
            with _sharing:
                client = _mocks.setdefault(address, client)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the settings of the schema registry cannot be used: {error}; correct them.") from error
    return client


def _schema(kind: str, text: str, references: Sequence[Reference]) -> Schema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, kind, [SchemaReference(one.name, one.subject, one.version) for one in references])


def _registered(schema_id: int, schema: Schema, version: int | None) -> RegisteredSchema:
    references = tuple(
        Reference(one.name or "", one.subject or "", one.version or 0) for one in schema.references or ()
    )
    return RegisteredSchema(schema_id, schema.schema_str or "", references, version)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host))
