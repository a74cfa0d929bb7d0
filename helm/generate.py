"""Write what is made from other files: `python -m helm.generate`, or `make manifests`.

The chart's copies of the definitions come from `crds/`, its schema from `helm/values_schema.py`, the table of its
README from the comments in `values.yaml`, its icon from `files/icon.svg`, and `deploy/` from the chart's templates with
the default values.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from helm.values_schema import values_schema
from millpond.errors import MillpondError
from tests.support.programs.helm import HELM_4, find

__all__ = ("CHART", "ROOT", "chart_files", "deploy_files", "described_values", "main")

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "millpond"
DEPLOY = ROOT / "deploy"
_NAMESPACE = "millpond-system"
_IMAGE = "millpond-operator"
_RENDERED = (
    "# Rendered from helm/millpond by `make manifests`: change the chart's templates in the place of this file.\n"
)
_FILES = {
    "access.yaml": ("serviceaccount.yaml", "rbac.yaml"),
    "user-roles.yaml": ("user-roles.yaml",),
    "coordinator.yaml": ("services.yaml",),
    "operator.yaml": ("deployment.yaml", "poddisruptionbudget.yaml"),
    "network-policy.yaml": ("networkpolicy.yaml",),
}
"""Each file of `deploy/`, and the templates that it consists of."""
_HELM_ONLY = re.compile(r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
_OWN_NAMESPACE = re.compile(rf"^  namespace: {_NAMESPACE}\n", re.MULTILINE)
_TABLE = re.compile(r"(<!-- values: begin -->\n).*(<!-- values: end -->)", re.DOTALL)


def chart_files() -> dict[Path, str]:
    """Return the content of each generated file of the chart, by path."""
    made = {CHART / "files" / "crds" / each.name: each.read_text() for each in sorted((ROOT / "crds").glob("*.yaml"))}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    made[CHART / "values.schema.json"] = json.dumps(values_schema(defaults), indent=1) + "\n"
    icon = base64.b64encode((CHART / "files" / "icon.svg").read_bytes()).decode()
    chart = (CHART / "Chart.yaml").read_text()
    made[CHART / "Chart.yaml"] = re.sub(
        r"^icon: .*$", f"icon: data:image/svg+xml;base64,{icon}", chart, flags=re.MULTILINE
    )
    readme = (CHART / "README.md").read_text()
    made[CHART / "README.md"] = _TABLE.sub(lambda found: found[1] + _values_table() + found[2], readme)
    return made


def deploy_files(helm: Path) -> dict[Path, str]:
    """Return the content of each file of `deploy/`, by path.

    Args:
        helm: the program that renders the chart.

    Raises:
        MillpondError: it cannot render the chart.
    """
    command = [
        helm,
        "template",
        "millpond",
        CHART,
        "--namespace",
        _NAMESPACE,
        "--no-hooks",
        "--set",
        "crds.install=false",
    ]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MillpondError(f"helm cannot render the chart: {done.stderr.strip()}")
    parts: dict[str, list[str]] = {}
    for source, text in re.findall(
        r"^# Source: millpond/templates/(\S+)\n(.*?)(?=^---\n|\Z)", done.stdout, re.DOTALL | re.MULTILINE
    ):
        parts.setdefault(source, []).append(text.strip("\n") + "\n")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    made = {}
    for file, sources in _FILES.items():
        text = "---\n".join(part for source in sources for part in parts.pop(source))
        text = _OWN_NAMESPACE.sub("", _HELM_ONLY.sub("", text)).replace(
            f"image: {_IMAGE}:{version}\n", f"image: {_IMAGE}\n"
        )
        made[DEPLOY / file] = _RENDERED + text
    if parts:
        raise MillpondError(f"No file of deploy/ has {', '.join(sorted(parts))}: add it to helm/generate.py.")
    made[DEPLOY / "namespace.yaml"] = _RENDERED + _namespace()
    made[DEPLOY / "kustomization.yaml"] = _RENDERED + _kustomization(version)
    return made


def described_values() -> Iterator[tuple[str, str, str]]:
    """Yield the path, the default as JSON and the description of each value that has a comment above it."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    lines = (CHART / "values.yaml").read_text().splitlines()
    values = yaml.safe_load("\n".join(lines))
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        if found := re.match(r"^( *)([\w.]+):", line):
            indent = len(found[1])
            path = [each for each in path if each[0] < indent] + [(indent, found[2])]
            if comment:
                value = values
                for _, key in path:
                    value = value[key]
                yield ".".join(key for _, key in path), json.dumps(value), " ".join(comment)
        comment = []


def _values_table() -> str:
    rows = [f"| `{path}` | `{default}` | {text} |\n" for path, default, text in described_values()]
    return "| value | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _namespace() -> str:
    modes = "".join(f"    pod-security.kubernetes.io/{mode}: restricted\n" for mode in ("enforce", "audit", "warn"))
    return (
        f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {_NAMESPACE}\n  labels:\n"
        f"    app.kubernetes.io/name: {_IMAGE}\n    app.kubernetes.io/part-of: millpond\n{modes}"
    )


def _kustomization(version: str) -> str:
    resources = "".join(f"  - {file}\n" for file in ("namespace.yaml", *_FILES))
    return (
        "# Installs the operator for all namespaces, once the custom resource definitions are there:\n"
        "#   kubectl apply --server-side -k crds/ && kubectl apply --server-side -k deploy/\n"
        "# The definitions are not included on purpose: deleting them deletes all StreamApps.\n"
        "# In an overlay, `images` names another image and `namespace` another namespace.\n"
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"namespace: {_NAMESPACE}\nresources:\n{resources}images:\n  - name: {_IMAGE}\n    newTag: {version}\n"
    )


def main() -> None:
    """Write all generated files that differ, and print their paths."""
    try:
        for path, text in chart_files().items():
            _write(path, text)
        for path, text in deploy_files(find(HELM_4)).items():
            _write(path, text)
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
