"""Checks manifests of StreamApps and StateBootstraps as the API server and the operator do.

The schema and its validation rules are those of the definitions that a cluster gets. What the operator itself refuses
is found by its own code. Rules about a change need the object of a cluster, and are left out.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.checks import kind_of, nearest
from millpond_operator.resources import (
    InvalidStateBootstrap,
    InvalidStreamApp,
    StreamApp,
    Surroundings,
    check_environment,
    parse,
    parse_bootstrap,
    pod_template,
)

from .definitions import Definition, definitions
from .documents import Document, MalformedYaml, read_documents
from .impossible import checks_schedules, impossible_in_app, impossible_in_bootstrap
from .schemas import defaulted, pruned
from .validating import Validator

__all__ = ("Application", "Checked", "Finding", "check_manifest", "evaluates_rules")

_GROUP = "millpond.dev/"
_TOP = ("apiVersion", "kind", "metadata")
_METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PREFIX = re.compile(r'^(?:Forbidden|Invalid value: "(?:object|array|string|boolean|integer|number)"): ')
_ELSEWHERE = frozenset({"MILLPOND_CREDENTIALS_DIR", "MILLPOND_BOOTSTRAP_CREDENTIALS_DIR"})
"""Variables that name directories of the pod."""
_SURROUNDINGS = Surroundings(
    coordinator_url_base="https://coordinator:7070", ca_pem="", leader_epoch=0, operator_namespace="millpond-system"
)


@dataclass(frozen=True, order=True)
class Finding:
    """A fault in a manifest.

    Attributes:
        line: the line in the file, from 1.
        field: the path of the field; "" for the document.
        text: the cause, and the cure if it is known.
    """

    line: int
    field: str
    text: str


@dataclass(frozen=True)
class Application:
    """A StreamApp without faults, as its workers run it.

    Attributes:
        name: of the StreamApp.
        topology: ``module:attribute``.
        line: the line of `spec.topology`.
        variables: the environment of its workers, without the variables whose values the cluster knows.
        config_lines: the lines of the settings in `spec.config`.
        secret: the Secret with settings of its Kafka clients; empty without one.
    """

    name: str
    topology: str
    line: int
    variables: Mapping[str, str]
    config_lines: Mapping[str, int]
    secret: str = ""


@dataclass
class Checked:
    """The result of a check.

    Attributes:
        findings: the faults, in the order of the file.
        objects: kind and name of each object without faults.
        applications: the StreamApps among them.
        others: how many objects are of other groups than millpond.dev, and were not checked.
        unchecked_rules: how many validation rules were not evaluated, for want of a library.
        unchecked_schedules: how many schedules were not checked, for want of a library.
    """

    findings: list[Finding] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    others: int = 0
    unchecked_rules: int = 0
    unchecked_schedules: int = 0


def evaluates_rules() -> bool:
    """Return whether the library that evaluates validation rules is installed: cel-python."""
    return importlib.util.find_spec("celpy") is not None


def check_manifest(text: str) -> Checked:
    """Check the objects of a YAML file.

    Args:
        text: the content of the file.

    Returns:
        What was found. Rules that compare an object with its former state are not evaluated, and without cel-python no
        rule is.
    """
    checked = Checked()
    try:
        documents = read_documents(text)
    except MalformedYaml as error:
        checked.findings.append(Finding(error.line, "", f"{error}."))
        return checked
    for document in documents:
        _check_document(document, checked)
    checked.findings.sort()
    return checked


def _check_document(document: Document, checked: Checked) -> None:
    item = document.content
    if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
        checked.findings.append(Finding(document.line(""), "", "this is no Kubernetes object: it has no kind."))
        return
    definition, fault = _definition_of(item)
    if fault:
        place = "apiVersion" if definition else "kind"
        checked.findings.append(Finding(document.line(place), place, fault))
    elif definition is None:
        checked.others += 1
    else:
        validator = Validator(definition.schema, rules=evaluates_rules())
        found = [Finding(document.line(path), path, text) for path, text in _faults(item, definition, validator)]
        checked.unchecked_rules += 0 if evaluates_rules() else validator.rules_in(item)
        if not found:
            found = list(_refused(item, document, checked))
        checked.findings += found


def _definition_of(item: dict[str, Any]) -> tuple[Definition | None, str]:
    """Return the definition of an object's kind, and a fault; neither for an object of another group."""
    kind, api_version = item["kind"], str(item.get("apiVersion", ""))
    known = definitions()
    definition = known.get(kind)
    if definition is not None:
        if api_version == definition.api_version:
            return definition, ""
        if api_version and not api_version.startswith(_GROUP):
            return None, ""
        given = f"is '{api_version}'" if api_version else "is missing"
        return definition, f"apiVersion {given}: write apiVersion: {definition.api_version}."
    if not api_version.startswith(_GROUP):
        return None, ""
    near = nearest(kind, known)
    hint = f"did you mean '{near}'?" if near else f"the kinds are {', '.join(sorted(known))}."
    return None, f"kind '{kind}' does not exist in {api_version.partition('/')[0]}; {hint}"


def _faults(item: dict[str, Any], definition: Definition, validator: Validator) -> Iterator[tuple[str, str]]:
    """Yield what the API server refuses: paths and sentences."""
    yield from _metadata_faults(item.get("metadata"))
    schema = {
        **definition.schema,
        "properties": {key: each for key, each in definition.schema["properties"].items() if key not in _TOP},
    }
    unknown: list[str] = []
    known = pruned(schema, {key: value for key, value in item.items() if key not in _TOP}, unknown, "")
    for path in unknown:
        yield path, _unknown(path, schema)
    complete = {key: item[key] for key in _TOP if key in item} | defaulted(schema, known)
    if isinstance(complete.get("metadata"), dict) and isinstance(complete["metadata"].get("name"), str):
        for _reason, path, text in validator.causes(complete, None):
            yield "" if path == "<nil>" else path, _sentence(text)


def _metadata_faults(metadata: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(metadata, dict):
        yield "metadata", "metadata is missing: write metadata: {name: …}."
        return
    if not metadata.get("name"):
        yield "metadata.name", "metadata.name is missing."
    for field_name, value in metadata.items():
        path = f"metadata.{field_name}"
        if field_name not in _METADATA:
            yield path, _near(f'unknown field "{path}"', field_name, _METADATA)
        elif field_name in {"name", "namespace"} and value is not None and not isinstance(value, str):
            yield path, f"{path} is {kind_of(value)}, and has to be a text: put it into quotes."
        elif field_name == "namespace" and value and _LABEL.fullmatch(value) is None:
            yield path, f"'{value}' cannot be the name of a namespace."
        elif field_name in {"labels", "annotations"} and isinstance(value, dict):
            for key, each in value.items():
                if not isinstance(each, str):
                    fault = f"the value of '{key}' is {kind_of(each)}, and has to be a text: put it into quotes."
                    yield f"{path}.{key}", fault


def _unknown(path: str, schema: Mapping[str, Any]) -> str:
    """Return a sentence about a field that the schema does not know."""
    above, _, name = path.rpartition(".")
    for part in re.findall(r"[^.\[\]]+", above):
        schema = schema["items"] if part.isdigit() and "items" in schema else schema["properties"][part]
    return _near(f'unknown field "{path}"', name, schema.get("properties") or {})


def _near(fault: str, word: str, known: Any) -> str:
    near = nearest(word, known)
    return f"{fault}; did you mean '{near}'?" if near else f"{fault}."


def _sentence(text: str) -> str:
    text = _PREFIX.sub("", text)
    return text if text.endswith((".", "?")) else f"{text}."


def _refused(item: dict[str, Any], document: Document, checked: Checked) -> Iterator[Finding]:
    """Yield what the operator itself refuses; note the object if it refuses nothing."""
    kind, name = item["kind"], item["metadata"]["name"]
    impossible: list[tuple[str, str]] = []
    placed = {**item, "metadata": {"namespace": "default", **item["metadata"]}}
    try:
        if kind == "StreamApp":
            app = parse(placed)
            impossible = list(impossible_in_app(app.spec))
            checked.unchecked_schedules += _has_schedule(app) and not checks_schedules()
            template = pod_template(app, _SURROUNDINGS)
            check_environment(app, template)
            if not impossible:
                checked.applications.append(_application(app, template, document))
        elif kind == "StateBootstrap":
            impossible = list(impossible_in_bootstrap(parse_bootstrap(placed).spec))
    except (InvalidStreamApp, InvalidStateBootstrap) as error:
        yield Finding(document.line("spec"), "spec", str(error))
        return
    if not impossible:
        checked.objects.append(f"{kind} {name}")
    for path, text in impossible:
        yield Finding(document.line(f"spec.{path}"), f"spec.{path}", text)


def _has_schedule(app: StreamApp) -> bool:
    return app.spec.bootstrap is not None and app.spec.bootstrap.schedule is not None


def _application(app: StreamApp, template: dict[str, Any], document: Document) -> Application:
    [container] = template["spec"]["containers"]
    variables = {
        each["name"]: each["value"].replace("$$", "$")
        for each in container["env"]
        if "value" in each and "$(" not in each["value"].replace("$$", "") and each["name"] not in _ELSEWHERE
    }
    config_lines = {key: document.line(f"spec.config.{key}") for key in app.spec.config or ()}
    secret = app.spec.kafka.credentials_secret or ""
    return Application(app.name, app.spec.topology, document.line("spec.topology"), variables, config_lines, secret)
