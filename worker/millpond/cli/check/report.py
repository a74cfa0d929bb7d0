"""What a check found, and the check of an application."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millpond.cli.application import load_topology
from millpond.cli.dev.remote import registry_of_session
from millpond.cli.options import config_file, with_imports
from millpond.errors import MillpondError
from millpond.runtime.config.model import load_without_imports
from millpond.runtime.config.sources import REGISTRY_VARIABLE
from millpond.topology.loops import looping_topics
from millpond.topology.settings.checking import check_startable

__all__ = ("Report",)


class Report:
    """What a check found.

    Args:
        file: the configuration file that is named on the command line.
        flags: settings of the command line.
        connect: see `connects`.

    Attributes:
        connects: whether the brokers are asked, too.
        lines: what is in order, and notes.
        faults: what is not.
    """

    def __init__(self, file: Path | None, flags: Mapping[str, object], *, connect: bool = False) -> None:
        self._file = config_file(file)
        self.connects: bool = connect
        self._flags = flags
        self.lines: list[str] = []
        self.faults: list[str] = []

    @property
    def file(self) -> Path | None:
        """The configuration file that is read, as by `millpond run`."""
        return self._file

    def application(self, target: str, *, place: str = "", environ: Mapping[str, str] | None = None) -> bool:
        """Check that a worker could start with an application.

        Args:
            target: ``MODULE:ATTRIBUTE``.
            place: the file and line that name it, for messages.
            environ: the environment of the worker. Default: that of this process.

        Returns:
            Whether it could.
        """
        where = f"{place}: " if place else ""
        required = ("application.id", "bootstrap.servers") if self.connects else ()
        faults, notes = list[str](), list[str]()
        try:
            early = load_without_imports(self._file, environ, self._flags, required=required)
            address = early.schema_registry_url
            if not address and environ is None:
                address = registry_of_session(early.application_id, early.bootstrap_servers)
            # As for a run: an application makes its SchemaRegistry while it is loaded.
            with _environment({**(environ or {}), **_registry(address)}):
                topology = load_topology(target, early.topology_optimization)
                config = with_imports(early, self._file, environ, self._flags)
            check_startable(topology, config)
            if self.connects:
                from .brokers import check_on_brokers

                faults, notes = check_on_brokers(topology, config)
        except MillpondError as error:
            faults.append(str(error))
        self.faults.extend(f"{where}{target}: {each}" for each in faults)
        if faults:
            return False
        settings = f" with {self._file}" if self._file else ""
        brokers = f" on {config.bootstrap_servers}" if self.connects else ""
        self.lines.append(f"{where}{target}: a worker can start{brokers}{settings}")
        self.lines.extend(f"{where}{target}: note: {each}" for each in notes)
        if str(topology.unnamed) and not config.ensure_explicit_internal_resource_naming:
            self.lines.append(
                f"{where}{target}: note: names are generated for {topology.unnamed}, and change when operators are "
                f"added before them; {topology.unnamed.cure}."
            )
        self.lines.extend(
            f"{where}{target}: note: what is read from '{topic}' is written to '{topic}' again, without an end unless "
            "the topology drops such records: write to another topic if that is not meant."
            for topic in looping_topics(topology)
        )
        return True

    def fault_of(self, environ: Mapping[str, str], *, imports: bool) -> str | None:
        """Return what is wrong with the settings in the environment of a worker; None if they are in order.

        Args:
            environ: the environment.
            imports: whether the code of its application is here, so that its import paths can be checked.
        """
        try:
            config = load_without_imports(None, environ, self._flags, required=())
            if imports:
                with _environment({**environ, **_registry(config.schema_registry_url)}):
                    with_imports(config, None, environ, self._flags)
        except MillpondError as error:
            return str(error)
        return None

    def overridden(self, place: str, environ: Mapping[str, str]) -> None:
        """Note the settings of the file that the environment of a worker overrides with other values.

        Args:
            place: what sets that environment, for messages.
            environ: the environment.
        """
        if self._file is None:
            return
        try:
            own, whole = (
                with_imports(load_without_imports(self._file, each, required=()), self._file, each, {})
                for each in ({}, environ)
            )
        except MillpondError:
            return  # it is told where the application is checked
        before, after = own.as_mapping(), whole.as_mapping()
        self.lines.extend(
            f"{place}: note: {key} is {_shown(after[key])} for its workers, and not {_shown(before[key])} as in "
            f"{self._file}: what a StreamApp says comes before the file."
            for key in own.origins
            if key in before and before[key] != after[key] and key != "state.dir"
        )


def _registry(address: str) -> dict[str, str]:
    """Return the variable from which an application that is loaded takes its schema registry."""
    return {REGISTRY_VARIABLE: address} if address else {}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process's environment, which the application's code may read."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)
