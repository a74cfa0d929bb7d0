"""Render the chart as `helm template` does."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from helm.generate import CHART

__all__ = ("Refused", "Rendering", "merged", "pods_of", "rendered_by_helm", "with_value")

Object = dict[str, Any]


class Refused(Exception):
    """Helm refuses to render the chart; the message is Helm's."""


class Rendering:
    """One way to render the chart.

    Args:
        program: Helm 3 or Helm 4.
        chart: the directory or the package.
    """

    def __init__(self, program: Path, chart: Path = CHART) -> None:
        self.program, self._chart = program, chart
        self._known: dict[tuple[str, str, str], str] = {}

    def text(
        self, values: Mapping[str, Any] | None = None, *, release: str = "millpond", namespace: str = "millpond-system"
    ) -> str:
        """Return the manifests.

        Raises:
            Refused: by the schema, or by a template.
        """
        key = (json.dumps(values or {}, sort_keys=True), release, namespace)
        if key not in self._known:
            command = [self.program, "template", release, self._chart, "--namespace", namespace, "--values", "-"]
            done = subprocess.run(
                [str(each) for each in command], input=key[0], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise Refused(done.stderr)
            self._known[key] = done.stdout
        return self._known[key]

    def objects(self, values: Mapping[str, Any] | None = None, **options: str) -> list[Object]:
        """Return the objects, hooks included."""
        # libyaml, where PyYAML has it: the definitions are long.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [each for each in yaml.load_all(self.text(values, **options), loader) if each]

    def one(self, kind: str, name: str, values: Mapping[str, Any] | None = None, **options: str) -> Object:
        """Return one object."""
        (found,) = (
            each
            for each in self.objects(values, **options)
            if each["kind"] == kind and each["metadata"]["name"] == name
        )
        return found


def rendered_by_helm(program: Path, command: str) -> str:
    """Return what a command `helm install` or `helm upgrade` would install: the same arguments, rendered.

    Raises:
        Refused: by Helm, or by the chart.
    """
    _, verb, release, chart, *options = shlex.split(command)
    known = subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=True).stdout
    if unknown := [each for each in options if each.startswith("--") and f"{each.partition('=')[0]} " not in known]:
        raise Refused(f"helm {verb} has no {unknown[0]}")
    flags = {"--reuse-values", "--reset-then-reuse-values", "--take-ownership", "--create-namespace", "--wait"}
    words = ["template", release, CHART.parents[1] / chart, *(each for each in options if each not in flags)]
    done = subprocess.run([str(each) for each in [program, *words]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def with_value(path: str, value: Any) -> dict[str, Any]:
    """Return nested values with one leaf: its path has dots."""
    first, _, rest = path.partition(".")
    return {first: with_value(rest, value) if rest else value}


def merged(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of later ones put into earlier ones, as Helm does."""
    result: dict[str, Any] = {}
    for each in given:
        for key, value in each.items():
            before = result.get(key)
            both = isinstance(before, dict) and isinstance(value, Mapping)
            result[key] = merged(before, value) if both else value
    return result


def pods_of(objects: list[Object]) -> list[Object]:
    """Return the pods that the objects describe, with a name."""
    found = []
    for each in objects:
        if each["kind"] in {"Deployment", "Job"}:
            template = each["spec"]["template"]
        elif each["kind"] == "Pod":
            template = each
        else:
            continue
        labels = template["metadata"].get("labels", {})
        metadata = {
            "name": f"{each['metadata']['name']}-x",
            "namespace": each["metadata"]["namespace"],
            "labels": labels,
        }
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return found
