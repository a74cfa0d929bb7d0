"""Requests to the coordinator of a consumer group are sent in the one way that cannot end the process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[3] / "worker" / "millpond"
_REQUESTS = {
    "alter_consumer_group_offsets",
    "delete_consumer_groups",
    "delete_consumer_group_offsets",
    "describe_consumer_groups",
    "list_consumer_group_offsets",
}
"""The methods of an admin client that ask the coordinator of a group."""


def _calls() -> Iterator[tuple[str, bool]]:
    """Yield the place of each request, and whether it is sent with the time limit that is never reached."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(each in text for each in _REQUESTS):
            continue
        limits = {"group_requests.REQUEST_TIMEOUT_S"}
        if "from millpond.runtime.kafka.group_requests import REQUEST_TIMEOUT_S" in text:
            limits.add("REQUEST_TIMEOUT_S")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REQUESTS:
                given = {ast.unparse(each.value) for each in node.keywords if each.arg == "request_timeout"}
                yield f"{path.relative_to(_PACKAGE)}:{node.lineno}", bool(given & limits)


def test_no_request_to_a_groups_coordinator_times_out_inside_a_client() -> None:
    """Clients may abort the process after such a timeout; see `runtime/kafka/group_requests.py`."""
    calls = dict(_calls())
    assert calls
    assert [place for place, right in calls.items() if not right] == []
