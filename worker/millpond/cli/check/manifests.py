"""Check manifests, and the applications that they name."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from millpond.errors import MillpondError

from .report import Report

__all__ = ("ManifestNotChecked", "check_file")

_INSTALL = "pip install 'millpond[check]'"


class ManifestNotChecked(MillpondError):
    """A manifest cannot be read, or a library is missing."""


def check_file(path: Path, report: Report) -> None:
    """Check the objects in a YAML file, and the topologies of its StreamApps.

    Raises:
        ManifestNotChecked: the file cannot be read, or PyYAML is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise ManifestNotChecked(f"{path} cannot be read: {reason}.") from error
    if importlib.util.find_spec("yaml") is None:
        raise ManifestNotChecked(f"manifests are read with PyYAML, which is not installed: {_INSTALL}.")
    from millpond_operator.manifests import check_manifest

    checked = check_manifest(text)
    report.faults.extend(
        f"{path}:{each.line}: {f'{each.field}: ' if each.field and each.field not in each.text else ''}{each.text}"
        for each in checked.findings
    )
    report.lines.extend(f"{path}: {each} is valid" for each in checked.objects)
    if checked.unchecked_rules:
        report.lines.append(
            f"{path}: note: {checked.unchecked_rules} validation rules were not evaluated, since cel-python is not "
            f"installed: {_INSTALL}, or ask the API server, by kubectl apply --dry-run=server."
        )
    if checked.others:
        report.lines.append(f"{path}: note: {checked.others} objects of other kinds were not checked")
    for app in checked.applications:
        place = f"{path}:{app.line}"
        if not _is_here(app.topology):
            report.lines.append(
                f"{place}: note: {app.topology} was not checked, since its module is not in {Path.cwd()}"
            )
            continue
        environ = _merged(app.variables)
        report.application(app.topology, place=place, environ=environ)
        report.overridden(f"{path}: StreamApp {app.name}", environ)


def _is_here(topology: str) -> bool:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return importlib.util.find_spec(topology.partition(":")[0].partition(".")[0]) is not None


def _merged(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: that of its pod, in which this process's settings have no part."""
    return {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")} | dict(variables)
