"""Creating, changing and deleting objects by the rules of their kinds. Nothing here waits: each call is one write."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.cluster.memory import deleting
from tests.cluster.memory.failures import ApiFailure, already_exists, bad_request, conflict, invalid, not_found
from tests.cluster.memory.field_management import strategies
from tests.cluster.memory.field_management.applying import Writer, applied, updated, without_times
from tests.cluster.memory.field_management.schemas import Mismatch, Schema, built_in, normalised
from tests.cluster.memory.kinds import Kind, Kinds
from tests.cluster.memory.store import Entry, Store
from tests.cluster.memory.validation.custom import CustomType, whole
from tests.cluster.memory.validation.defaults import default

__all__ = ("Options", "Resources", "stamp")

Object = dict[str, Any]
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58


def stamp(moment: datetime) -> str:
    """A time as the API server writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Options:
    """Options of a write."""

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False
    strict: bool = False
    """Fields that are not known are an error."""
    subresource: str = ""


class Resources:
    """The objects and their rules."""

    def __init__(self, store: Store, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self.store = store
        self.kinds = kinds
        self.now = now
        self._empty: dict[Kind, Object] = {}

    # Types.

    def schema(self, kind: Kind) -> Schema:
        """The type of a kind."""
        if kind.type:
            return built_in(kind.type)
        assert isinstance(kind.schema, CustomType)
        return kind.schema.typed

    def decoded(self, kind: Kind, given: Any, options: Options) -> Object:
        """Decode an object.

        Raises:
            ApiFailure: it is not an object of its kind.
        """
        if not isinstance(given, dict):
            raise bad_request("the object provided is unrecognized (must be of type object)")
        if given.get("kind", kind.kind) != kind.kind or given.get("apiVersion", kind.api_version) != kind.api_version:
            raise bad_request(
                f"the API version in the data ({given.get('apiVersion')}) does not match the expected API version "
                f"({kind.api_version})"
            )
        unknown: list[str] = []
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        try:
            if kind.type:
                rest = {key: value for key, value in given.items() if key not in head}
                if kind.kind == "Secret" and rest.get("stringData"):
                    rest = strategies.with_string_data(rest)
                made = head | _ordered(normalised(built_in(kind.type), rest, unknown))
                made = whole(made)
                default(kind.kind, made)
                # Defaults may have made what was left out for being empty.
            else:
                made = head | kind.schema.decoded({**given, **head}, unknown)
        except Mismatch as error:
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: {error}'
            ) from None
        if unknown and options.strict:
            told = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {told}"
            )
        return made

    def empty(self, kind: Kind) -> Object:
        """An empty object of a kind."""
        found = self._empty.get(kind)
        if found is None:
            head = {"apiVersion": kind.api_version, "kind": kind.kind}
            found = head | (normalised(built_in(kind.type), {}, []) if kind.type else {})
            self._empty[kind] = found
        return found

    def _writer(self, kind: Kind, options: Options) -> Writer:
        ignored = strategies.ignored(kind, options.subresource)
        version = "autoscaling/v1" if options.subresource == "scale" else kind.api_version
        return Writer(options.manager, version, options.subresource, stamp(self.now()), ignored)

    # Reading.

    def find(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """An object, or None if there is none."""
        return self.store.get(kind, namespace, name)

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        """An object.

        Raises:
            ApiFailure: there is none.
        """
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    # Writing.

    def create(self, kind: Kind, namespace: str, given: Any, options: Options) -> Entry:
        """Create an object."""
        item = self.decoded(kind, given, options)
        metadata = item["metadata"]
        _check_namespace(kind, namespace, metadata)
        if metadata.get("generateName") and not metadata.get("name"):
            suffix = "".join(random.choices(_SUFFIX, k=5))
            metadata["name"] = metadata["generateName"][:_LONGEST_PREFIX] + suffix
        return self._create(kind, namespace, item, options, None)

    def _create(
        self, kind: Kind, namespace: str, item: Object, options: Options, managed: list[Object] | None
    ) -> Entry:
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            item["metadata"].pop(field, None)
        if item["metadata"].pop("resourceVersion", "") and managed is None:
            raise ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
        item = (
            updated(self.schema(kind), None, item, self._writer(kind, options), self.empty(kind))
            if managed is None
            else item
        )
        metadata = item["metadata"]
        if managed:
            metadata["managedFields"] = managed
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp(self.now())}
        strategies.prepare_create(kind, item)
        self._check_namespace_is_there(kind, namespace, metadata.get("name", ""))
        causes = strategies.validate(kind, item, None)
        if causes:
            raise invalid(kind, metadata.get("name", ""), causes)
        if self.store.get(kind, namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        strategies.admit_create(self.store, self.kinds, kind, item)
        item["metadata"] = _sorted_metadata(metadata)
        if options.dry_run:
            return Entry(item, self.store.version)
        return self.store.put(kind, item)

    def _check_namespace_is_there(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        of = self.kinds.at("", "v1", "namespaces")
        assert of is not None
        found = self.store.get(of, "", namespace)
        if found is None:
            raise not_found(of, namespace)
        if "deletionTimestamp" in found.object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            causes = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise ApiFailure(
                403,
                "Forbidden",
                f'{kind.resource} "{name}" is forbidden: {why}',
                {"name": name, "kind": kind.plural, "causes": causes},
            )

    def replace(self, kind: Kind, namespace: str, name: str, given: Any, options: Options) -> tuple[Entry, bool]:
        """Replace an object; return it, and whether it is new."""
        if options.subresource == "scale":
            return self._scaled(kind, namespace, name, given, options), False
        item = self.decoded(kind, given, options)
        _check_namespace(kind, namespace, item["metadata"])
        live = self.get(kind, namespace, name)
        if not item["metadata"].get("resourceVersion") and not strategies.unconditional(kind):
            told = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, [("FieldValueInvalid", "metadata.resourceVersion", told)])
        return self._update(kind, live, item, options), False

    def patch(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Object, Schema], Any], options: Options
    ) -> Entry:
        """Change an object by a function of its state."""
        live = self.get(kind, namespace, name)
        if options.subresource == "scale":
            scale = change(self.scale_of(kind, live.object), built_in("io.k8s.api.autoscaling.v1.Scale"))
            return self._scaled(kind, namespace, name, scale, options)
        given = change(live.object, self.schema(kind))
        item = self.decoded(kind, given, options)
        if options.subresource and kind.kind != "Namespace":
            item["metadata"]["managedFields"] = live.object["metadata"].get("managedFields", [])
        return self._update(kind, live, item, options)

    def apply(self, kind: Kind, namespace: str, name: str, config: Any, options: Options) -> tuple[Entry, bool]:
        """Apply a configuration; return the object, and whether it is new."""
        if not isinstance(config, dict):
            raise bad_request("error decoding YAML: the configuration is no object")
        for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if options.subresource != "scale" and config.get(field) != wanted:
                raise bad_request(f"invalid object type: {field} must be {wanted}")
        metadata = config.get("metadata") or {}
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        _check_namespace(kind, namespace, metadata)
        writer = self._writer(kind, options)
        schema = self.schema(kind)
        live = self.store.get(kind, namespace, name)
        if live is None and options.subresource:
            raise not_found(kind, name)
        if live is not None and metadata.get("uid") not in (None, live.object["metadata"]["uid"]):
            raise conflict(kind, name, _precondition(metadata["uid"], live.object["metadata"]["uid"]))
        if live is None and metadata.get("uid"):
            raise conflict(
                kind,
                name,
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found",
            )
        if kind.kind == "Secret" and config.get("stringData"):
            pass
        before = live.object if live is not None else self.empty(kind)
        where = (
            f"{namespace}/{name}; {kind.api_version}, Kind={kind.kind}"
            if namespace
            else f"/{name}; {kind.api_version}, Kind={kind.kind}"
        )
        made = applied(
            schema,
            before,
            config,
            writer,
            force=options.force,
            empty=self.empty(kind),
            finish=lambda item: self.decoded(kind, item, options),
            where=where,
        )
        if live is not None:
            return self._update(kind, live, made, options, managed=True), False
        made = whole(made)
        made["metadata"]["name"] = name
        managed = made["metadata"].pop("managedFields", [])
        return self._create(kind, namespace, made, options, managed), True

    def _update(self, kind: Kind, live: Entry, item: Object, options: Options, *, managed: bool = False) -> Entry:
        """Write a new version of an object, if it differs."""
        old = live.object
        name = old["metadata"]["name"]
        metadata = item["metadata"]
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise conflict(kind, name, _precondition(metadata["uid"], old["metadata"]["uid"]))
        if metadata.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if not managed:
            item = updated(self.schema(kind), old, item, self._writer(kind, options), self.empty(kind))
        item = {**item, "metadata": {**item["metadata"]}}
        metadata = item["metadata"]
        for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"):
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
            else:
                metadata.pop(field, None)
        for field in ("deletionGracePeriodSeconds", "generateName"):
            if field in old["metadata"] and field == "deletionGracePeriodSeconds":
                metadata[field] = old["metadata"][field]
            elif field == "deletionGracePeriodSeconds":
                metadata.pop(field, None)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        item = strategies.prepare_update(kind, old, item, options.subresource)
        item["metadata"] = _sorted_metadata(item["metadata"])
        if item == old or _only_times(item, old):
            return live
        causes = strategies.validate(kind, item, old, options.subresource)
        if "deletionTimestamp" in metadata:
            more = [
                each
                for each in metadata.get("finalizers") or ()
                if each not in (old["metadata"].get("finalizers") or ())
            ]
            if more:
                told = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
                causes.append(("FieldValueForbidden", "metadata.finalizers", f"{told}{more}"))
        if causes:
            raise invalid(kind, name, causes)
        strategies.admit_update(self.store, self.kinds, kind, item, old, options.subresource)
        if options.dry_run:
            return Entry(item, live.version)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and deleting.over(kind, item):
            return self.store.remove(kind, live, item)
        return self.store.put(kind, item)

    # Scale.

    def scale_of(self, kind: Kind, item: Object) -> Object:
        """An object's Scale."""
        spec, status = strategies.scale(kind, item)
        metadata = {
            key: item["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        }
        made: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata}
        return made | {"spec": {"replicas": spec} if spec else {}, "status": status}

    def _scaled(self, kind: Kind, namespace: str, name: str, given: Any, options: Options) -> Entry:
        live = self.get(kind, namespace, name)
        version = (given.get("metadata") or {}).get("resourceVersion")
        if version and version != live.object["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        replicas = (given.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            causes = [
                ("FieldValueInvalid", "spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
            ]
            raise ApiFailure(
                422, "Invalid", f'Scale.autoscaling "{name}" is invalid: spec.replicas: {causes[0][2]}', None
            )
        item = whole(live.object)
        strategies.set_scale(kind, item, replicas)
        entry = self._update(kind, live, item, options)
        return Entry(self.scale_of(kind, entry.object), entry.version)

    # Deleting.

    def delete(
        self, kind: Kind, namespace: str, name: str, given: Object, *, dry_run: bool = False
    ) -> tuple[Entry, bool]:
        """Delete an object, or start to; return its state, and whether it is deleted."""
        live = self.get(kind, namespace, name)
        item = live.object
        wanted = given.get("preconditions") or {}
        uid = item["metadata"]["uid"]
        if wanted.get("uid") not in (None, uid):
            why = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({uid})"
            raise conflict(kind, name, f"{why}. The object might have been deleted and then recreated")
        version = item["metadata"]["resourceVersion"]
        if wanted.get("resourceVersion") not in (None, version):
            raise conflict(
                kind,
                name,
                f"Precondition failed: ResourceVersion in precondition: {wanted['resourceVersion']}, "
                f"ResourceVersion in object meta: {version}",
            )
        left = deleting.begun(kind, item, given, self.now())
        if dry_run:
            return live, left is None
        if left is None:
            return self.store.remove(kind, live), True
        if left == item:
            return live, False
        return self.store.put(kind, left), False


def _ordered(item: Object) -> Object:
    metadata = item.pop("metadata", {})
    return {"metadata": metadata, **item}


_ORDER = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


def _sorted_metadata(metadata: Object) -> Object:
    made = {key: metadata[key] for key in _ORDER if key in metadata}
    return made | {key: value for key, value in metadata.items() if key not in made}


def _only_times(item: Object, old: Object) -> bool:
    fields, before = item["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not fields or not before or len(fields) != len(before):
        return False
    return without_times(item) == without_times(old)


def _precondition(given: str, there: str) -> str:
    return f"Precondition failed: UID in precondition: {given}, UID in object meta: {there}"


def _check_namespace(kind: Kind, namespace: str, metadata: Object) -> None:
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = namespace
