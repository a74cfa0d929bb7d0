"""The changes in progress that the status of a StreamApp has, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.times import parse_epoch_ms

from .wording import span

__all__ = ("progress_of",)


def progress_of(app: Mapping[str, Any], now_ms: int) -> list[str]:
    """Return the changes in progress, one sentence each.

    Args:
        app: the StreamApp.
        now_ms: the current time, epoch ms.
    """
    status = app.get("status") or {}
    found = []
    if rollout := status.get("rollout"):
        found.append(_rollout(rollout, now_ms))
    if failed := status.get("failed"):
        found.append(f"Revision {failed['revision']} failed: {failed['message']}")
    if scaling := status.get("scaling"):
        found.append(f"Scaling in to {scaling['to']} workers{_since(scaling['since'], now_ms)}.")
    if draining := status.get("draining"):
        found.append(_draining(draining, now_ms))
    metadata = app.get("metadata", {})
    if (metadata.get("annotations") or {}).get("millpond.dev/reconcile") == "paused":
        found.append("Reconciling is paused by the annotation millpond.dev/reconcile.")
    if status and status.get("observedGeneration", 0) < metadata.get("generation", 0):
        found.append("The operator has not seen the latest change of the StreamApp yet.")
    return found


def _rollout(rollout: Mapping[str, Any], now_ms: int) -> str:
    text = f"Rolling out revision {rollout['revision']}"
    if former := rollout.get("from"):
        text += f" (before: {former})"
    text += _since(rollout.get("startedAt", ""), now_ms)
    if worker := rollout.get("worker"):
        text += f", now {worker}, which {'starts' if rollout.get('restarting') else 'hands its tasks over'}"
    return f"{text}."


def _draining(draining: Mapping[str, Any], now_ms: int) -> str:
    if message := draining.get("message"):
        return str(message)
    names = ", ".join(draining.get("workers", ()))
    if draining.get("drained") == draining.get("workers"):
        return f"Drained by request{_since(draining.get('since', ''), now_ms)}: {names}."
    return f"Draining by request{_since(draining.get('since', ''), now_ms)}: {names}."


def _since(text: str, now_ms: int) -> str:
    try:
        since_ms = parse_epoch_ms(text)
    except ValueError:
        return ""
    return f" for {span(max(0, now_ms - since_ms) // 1000)}"
