"""What StreamApps may use, by the operator's settings: Secrets, ConfigMaps, tolerations and priority classes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.resources import StateBootstrap, StreamApp, StreamAppSpec

__all__ = ("Allowed",)

_Use = tuple[str, str]
"""A field and the name in it."""


@dataclass(frozen=True)
class Allowed:
    """Names or patterns, such as `team-*`; none for no limit."""

    mounts: Sequence[str] = ()
    """Secrets and ConfigMaps that pods may mount or have in their environment."""
    tolerations: Sequence[str] = ()
    """Keys of taints."""
    priority_classes: Sequence[str] = ()

    def problem(self, app: StreamApp) -> Problem | None:
        """Return the first thing that a StreamApp uses although it may not; None when there is none."""
        pod = app.spec.pod
        classes = [("spec.pod.priorityClassName", pod.priority_class_name)] if pod.priority_class_name else []
        return (
            _problem("Secret or ConfigMap", "--allowed-mounts", self.mounts, _mounts(app.spec))
            or _problem(
                "taint",
                "--allowed-tolerations",
                self.tolerations,
                (("spec.pod.tolerations", each.key) for each in pod.tolerations),
            )
            or _problem("priority class", "--allowed-priority-classes", self.priority_classes, classes)
        )

    def problem_of_snapshot(self, bootstrap: StateBootstrap) -> Problem | None:
        """Return the Secret that a StateBootstrap uses although it may not; None when there is none."""
        secret = bootstrap.spec.credentials_secret
        uses = [("spec.credentialsSecret", secret)] if secret is not None else []
        return _problem("Secret or ConfigMap", "--allowed-mounts", self.mounts, uses)


def _problem(what: str, flag: str, allowed: Sequence[str], uses: Iterable[_Use]) -> Problem | None:
    if not allowed:
        return None
    for field, name in uses:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed):
            used = f"the {what} '{name}'" if name else f"every {what}"
            return Problem(
                "NotAllowed",
                f"{field} names {used}, which this operator does not allow ({flag}={','.join(allowed)}): name another, "
                "or have an administrator of the operator allow it.",
                persistent=True,
            )
    return None


def _mounts(spec: StreamAppSpec) -> Iterator[_Use]:
    """Yield the Secrets and ConfigMaps that a StreamApp's pods can read."""
    if spec.kafka.credentials_secret is not None:
        yield "spec.kafka.credentialsSecret", spec.kafka.credentials_secret
    if spec.bootstrap is not None and spec.bootstrap.credentials_secret is not None:
        yield "spec.bootstrap.credentialsSecret", spec.bootstrap.credentials_secret
    for mount in spec.pod.mounts:
        for name in (mount.secret, mount.config_map):
            if name is not None:
                yield "spec.pod.mounts", name
    for variable in spec.env:
        source = variable.value_from
        for reference in (source.secret_key_ref, source.config_map_key_ref) if source is not None else ():
            if reference is not None:
                yield "spec.env", reference.name
