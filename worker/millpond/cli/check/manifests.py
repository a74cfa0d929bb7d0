"""Check manifests, and the applications that they name."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.application import application_code
from millpond.errors import MillpondError

from .report import Report

if TYPE_CHECKING:
    from millpond_operator.manifests import Application

__all__ = ("ManifestNotChecked", "check_file")

_INLINE = "MILLPOND_CONFIG_INLINE"
_OF_CONFIG = re.compile(rf"setting '([^']+)' \(in {_INLINE}\)")
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
    if checked.unchecked_rules:
        report.lines.append(
            f"{path}: note: {checked.unchecked_rules} validation rules were not evaluated, since cel-python is not "
            f"installed: {_INSTALL}, or ask the API server, by kubectl apply --dry-run=server."
        )
    if checked.unchecked_schedules:
        report.lines.append(f"{path}: note: schedules were not checked, since cronsim is not installed: {_INSTALL}")
    if checked.others:
        report.lines.append(f"{path}: note: {checked.others} objects of other kinds were not checked")
    faulty = set()
    for app in checked.applications:
        if not _check_application(app, path, report):
            faulty.add(f"StreamApp {app.name}")
    report.lines.extend(f"{path}: {each} is valid" for each in checked.objects if each not in faulty)


def _check_application(app: Application, path: Path, report: Report) -> bool:
    """Check the settings and the topology of a StreamApp; return whether both are in order."""
    place, environ = f"{path}:{app.line}", _merged(app.variables)
    here = _is_here(app.topology)
    fault = report.fault_of(environ, imports=here)
    if fault is not None:
        named = _OF_CONFIG.match(fault)
        line = app.config_lines.get(named[1], app.line) if named else app.line
        report.faults.append(f"{path}:{line}: {fault.replace(f'in {_INLINE}', 'in spec.config')}")
        return False
    if not here:
        report.lines.append(f"{place}: note: {app.topology} was not checked, since its module is not in {Path.cwd()}")
        return True
    report.overridden(f"{path}: StreamApp {app.name}", environ)
    good = report.application(app.topology, place=place, environ=environ)
    if report.connects and app.secret and not good:
        report.lines.append(
            f"{place}: note: brokers were asked without the Secret '{app.secret}', which is not read: give the "
            "settings in it by --config, a file, or by --set."
        )
    return good


def _is_here(topology: str) -> bool:
    with application_code():
        try:
            return importlib.util.find_spec(topology.partition(":")[0].partition(".")[0]) is not None
        except ValueError:  # a module without a specification, such as __main__
            return True


def _merged(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: that of its pod, in which this process's settings have no part."""
    return {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")} | dict(variables)
