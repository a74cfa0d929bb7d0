"""Write `types.json`: the structs of the built-in kinds, from Kubernetes' own OpenAPI documents and Go sources.

    python -m tests.cluster.memory.generate_types [GOMODCACHE]

OpenAPI says how lists merge. Only the Go sources say which fields are pointers, and what is left out when it is empty.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.binaries import KUBERNETES
from tests.cluster.memory.kinds import BUILT_IN

_PREFIX = "#/components/schemas/"
_EXTRA = ("io.k8s.api.policy.v1.Eviction", "io.k8s.api.core.v1.Binding", "io.k8s.api.autoscaling.v1.Scale")
_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": "any",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
}
_FIELD = re.compile(r'^\t(?:(\w+)\s+)?(\S.*?)\s+`(?:[^`]*\s)?json:"([^"]*)"')


def main() -> None:
    """Write the file."""
    found = (
        sys.argv[1] if len(sys.argv) > 1 else subprocess.check_output(["go", "env", "GOMODCACHE"], text=True).strip()
    )
    modules = Path(found) / "k8s.io"
    types = reduced(_documents(modules), _GoTypes(modules))
    lines = [f"{json.dumps(name)}: {json.dumps(types[name], sort_keys=True)}" for name in sorted(types)]
    Path(__file__).with_name("types.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def reduced(schemas: dict[str, Any], go: _GoTypes) -> dict[str, Any]:
    """The structs that built-in kinds need, field by field."""
    wanted, made = [*(kind.type for kind in BUILT_IN), *_EXTRA], {}
    while wanted:
        name = wanted.pop()
        if name in made or name not in schemas:
            continue
        flags = go.fields(name)
        fields = {}
        for field, schema in schemas[name].get("properties", {}).items():
            fields[field] = _reduced(schema, wanted) | flags.get(field, {})
        made[name] = {"fields": fields}
        if schemas[name].get("x-kubernetes-map-type") == "atomic":
            made[name]["atomic"] = True
    return made


def _reduced(schema: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ()) if "$ref" in each), None)
    made: dict[str, Any] = {}
    if "default" in schema and schema["default"] not in ({}, "", 0, False, None):
        made["default"] = schema["default"]
    if reference is not None:
        name = reference.removeprefix(_PREFIX)
        if name in _SCALARS:
            return made | {"type": _SCALARS[name]}
        wanted.append(name)
        if schema.get("x-kubernetes-map-type") == "atomic":
            made["atomic"] = True
        return made | {"type": "struct", "of": name}
    if schema.get("type") == "array":
        made |= {"type": "list", "items": _reduced(schema["items"], wanted)}
        relation = schema.get("x-kubernetes-list-type")
        if relation == "map":
            made["keys"] = schema["x-kubernetes-list-map-keys"]
        elif relation == "set":
            made["set"] = True
        if "merge" in schema.get("x-kubernetes-patch-strategy", ""):
            key = schema.get("x-kubernetes-patch-merge-key")
            made["patch"] = key or ""
            if relation is None:
                made |= {"keys": [key]} if key else {"set": True}
        return made
    if "additionalProperties" in schema:
        made |= {"type": "map", "items": _reduced(schema["additionalProperties"], wanted)}
        if schema.get("x-kubernetes-map-type") == "atomic":
            made["atomic"] = True
        return made
    kind = {"object": "any", "byte": "bytes"}.get(schema.get("format") or "", schema.get("type", "any"))
    return made | {"type": "any" if kind == "object" else kind}


class _GoTypes:
    """How Go's JSON treats empty fields."""

    def __init__(self, modules: Path) -> None:
        self._version = KUBERNETES.removeprefix("v1.")
        self._modules = modules
        self._read: dict[str, dict[str, list[tuple[str, str, list[str]]]]] = {}

    def fields(self, name: str) -> dict[str, dict[str, Any]]:
        """Flags of the fields of a struct: `pointer`, `always` (written even when empty)."""
        package, _, struct = name.rpartition(".")
        made: dict[str, dict[str, Any]] = {}
        for type, field, options in self._struct(package, struct):
            if not field:
                continue
            flags: dict[str, Any] = {}
            if type.startswith("*"):
                flags["pointer"] = True
            if "omitempty" not in options or (
                not type.startswith(("*", "[]", "map[")) and self._is_struct(package, type)
            ):
                flags["always"] = True
            if "omitzero" in options:
                flags.pop("always", None)
            made[field] = flags
        return made

    def _struct(self, package: str, name: str) -> Iterator[tuple[str, str, list[str]]]:
        for type, field, options in self._package(package).get(name, ()):
            if "inline" in options:
                inlined = type.lstrip("*").rpartition(".")[2]
                of = "io.k8s.apimachinery.pkg.apis.meta.v1" if type.startswith("metav1.") else package
                yield from self._struct(of, inlined)
            else:
                yield type, field, options

    def _is_struct(self, package: str, type: str) -> bool:
        if type.startswith("metav1."):
            return type.removeprefix("metav1.") in self._package("io.k8s.apimachinery.pkg.apis.meta.v1")
        if type.startswith("v1."):
            return type.removeprefix("v1.") in self._package("io.k8s.api.core.v1")
        return type in {"resource.Quantity", "intstr.IntOrString", "runtime.RawExtension"} or type in self._package(
            package
        )

    def _package(self, package: str) -> dict[str, list[tuple[str, str, list[str]]]]:
        if package not in self._read:
            module, _, path = package.removeprefix("io.k8s.").partition(".")
            directory = self._modules / f"{module}@v0.{self._version}" / path.replace(".", "/")
            if not directory.is_dir():  # a dot in a group's name
                directory = (
                    self._modules / f"{module}@v0.{self._version}" / path.rpartition(".")[0].split(".")[-1] / "v1"
                )
            self._read[package] = {}
            for file in directory.glob("*types*.go"):
                self._read[package] |= dict(_structs(file.read_text()))
        return self._read[package]


def _structs(text: str) -> Iterator[tuple[str, list[tuple[str, str, list[str]]]]]:
    for match in re.finditer(r"^type (\w+) struct \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = []
        for line in match[2].splitlines():
            if found := _FIELD.match(line):
                field, *options = found[3].split(",")
                if not field and not options:
                    continue
                fields.append((found[2].split("//")[0].strip(), field, options))
        yield match[1], fields


def _documents(modules: Path) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for file in sorted((modules / f"kubernetes@{KUBERNETES}" / "api" / "openapi-spec" / "v3").glob("*_openapi.json")):
        schemas |= json.loads(file.read_text()).get("components", {}).get("schemas", {})
    return schemas


if __name__ == "__main__":
    main()
