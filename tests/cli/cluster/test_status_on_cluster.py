"""`millpond status` and `millpond tasks` on a real API server, with an operator that answers, and without one."""

from __future__ import annotations

import json

import msgspec
import pytest

from millpond.protocol.overview import ApplicationOverview
from tests.cli.cluster.conftest import ByHand, served
from tests.cli.cluster.samples import OVERVIEW, as_json
from tests.cli.conftest import Millpond

READ = {"apiGroups": ["millpond.dev"], "resources": ["streamapps", "streamassignments"], "verbs": ["get", "list"]}
PODS = {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]}
PROXY = {
    "apiGroups": [""],
    "resources": ["services/proxy"],
    "resourceNames": ["http:millpond-console:8081"],
    "verbs": ["get"],
}


@pytest.fixture
def console(by_hand: ByHand, host_address: str):
    """A stub of the leader's API behind the Service, with the paths that it was asked for."""

    def answer(path: str, _query: dict[str, str]):
        if path == "/api/applications":
            return 200, {"applications": [as_json()["summary"] | {"namespace": by_hand.namespace}]}
        if path == f"/api/applications/{by_hand.namespace}/delays":
            return 200, as_json()
        return 404, {"error": "no such application"}

    with served(answer, host_address) as stub:
        where = by_hand.service(host_address, stub.port)
        yield stub, where


def test_status_shows_the_operators_overview(by_hand: ByHand, console, millpond: Millpond) -> None:
    """One request through the API server's proxy gives rates, lags and reasons."""
    stub, where = console
    shown = millpond("status", "delays", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    assert shown.status == 0, shown.err
    assert "45,120 records/s . lag 1,204" in shown.out
    assert "delays-1's copy is within 10,000 records (lag 120,400)" in " ".join(shown.out.split())
    assert "Rolling out revision 7c20 (before: 6a1f)" in shown.out
    assert "missing" not in shown.out
    assert stub.paths == [f"/api/applications/{by_hand.namespace}/delays"]


def test_json_is_the_overview_as_served(by_hand: ByHand, console, millpond: Millpond) -> None:
    """Programs get all fields, and the changes in progress."""
    _, where = console
    shown = millpond("status", "delays", "--json", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    content = json.loads(shown.out)
    assert msgspec.convert(content, ApplicationOverview) == OVERVIEW
    assert content["missing"] == []
    assert content["inProgress"][0].startswith("Rolling out revision 7c20")


def test_right_to_one_service_is_enough_for_figures(by_hand: ByHand, console, millpond: Millpond) -> None:
    """Besides reading StreamApps, `get` of services/proxy of one Service is all that the overview needs."""
    _, where = console
    user = by_hand.user("viewer", READ, PROXY)
    shown = millpond("status", "delays", "--kubeconfig", user, "--console", where)
    assert shown.status == 0, shown.err
    assert "45,120 records/s" in shown.out
    listed = millpond("status", "--kubeconfig", user, "--console", where)
    assert "45,120" in listed.out


def test_without_the_right_the_objects_are_shown(by_hand: ByHand, console, millpond: Millpond) -> None:
    """The sentence names the missing right and the role that grants it."""
    stub, where = console
    user = by_hand.user("viewer", READ, PODS)
    shown = millpond("status", "delays", "--kubeconfig", user, "--console", where)
    assert shown.status == 0, shown.err
    text = " ".join(shown.out.split())
    assert (
        f"Rates, lags and the reasons of moves are missing: you lack the right to get services/proxy of {where}" in text
    )
    assert "the last that an operator saved" not in text
    assert "RollingOut . 2 of 3 workers . 3 of 4 tasks" in text
    assert "delays-2: CrashLoopBackOff, last ended with Error (1)" in text
    assert "2/2/0" in text or "delays-0" in text
    assert "The sample's event 1." in text
    assert stub.requests == []


def test_operator_that_is_down_leaves_what_it_saved(by_hand: ByHand, host_address: str, millpond: Millpond) -> None:
    """Without a leader the Service has no endpoints; pods, tasks, conditions and events are shown."""
    where = by_hand.service(host_address, 8081, endpoints=False)
    shown = millpond("status", "delays", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    text = " ".join(shown.out.split())
    assert "no operator leads: see the operator's pods." in text
    assert "Conditions and changes in progress are the last that an operator saved." in text
    assert "waiting for delays-2 to run its tasks" in text
    assert "WorkerLost" in text
    tasks = millpond("tasks", "delays", "--waiting", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    assert "0_3" in tasks.out and "0_0" not in tasks.out
    assert "moves from delays-2 to delays-1" in " ".join(tasks.out.split())


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (503, {"error": "this operator does not lead"}, "the operator does not answer (this operator does not lead)"),
        (404, b"404: Not Found", "is of a version before /api"),
        (200, [1], "the operator is of another version"),
        (200, {"summary": 3}, "the operator is of another version"),
    ],
)
def test_operator_that_gives_no_overview_is_named(
    by_hand: ByHand, host_address: str, millpond: Millpond, status: int, body: object, why: str
) -> None:
    """A replica that does not lead, an older and a newer operator leave the objects, with the reason."""
    with served(lambda *_: (status, body), host_address) as stub:
        where = by_hand.service(host_address, stub.port)
        shown = millpond("status", "delays", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    assert shown.status == 0, shown.err
    assert why in " ".join(shown.out.split())
    assert "2 of 3 workers" in shown.out


def test_missing_service_is_told_from_an_operator_that_is_down(by_hand: ByHand, millpond: Millpond) -> None:
    """The operator may be installed under another name; a user who may not look gets both causes."""
    where = f"{by_hand.namespace}/other"
    shown = millpond("status", "delays", "--kubeconfig", by_hand.kubeconfig(), "--console", where)
    assert f"there is no Service {where}: is the operator installed elsewhere (--console)?" in " ".join(
        shown.out.split()
    )
    anywhere = {**PROXY, "resourceNames": []}
    user = by_hand.user("viewer", READ, PODS, anywhere)
    shown = millpond("status", "delays", "--kubeconfig", user, "--console", where)
    assert f"no operator leads, or Service {where} does not exist" in " ".join(shown.out.split())
    bad = millpond("status", "delays", "--kubeconfig", user, "--console", "other")
    assert (bad.status, bad.err) == (
        1,
        "millpond: --console 'other' should look like millpond-system/millpond-console.\n",
    )


def test_missing_rights_to_parts_are_named(by_hand: ByHand, millpond: Millpond) -> None:
    """Who may read StreamApps only sees conditions."""
    user = by_hand.user("reader", {**READ, "resources": ["streamapps"]})
    shown = millpond("status", "delays", "--kubeconfig", user)
    text = " ".join(shown.out.split())
    assert shown.status == 0, shown.err
    assert "The pods are missing: you lack the right to list pods in namespace" in text
    assert "The tasks of workers are missing: you lack the right to get streamassignments.millpond.dev" in text
    assert "Ready False RollingOut" in text


def test_applications_are_listed(by_hand: ByHand, millpond: Millpond) -> None:
    """Without a name: those of the context's namespace, or of all."""
    config = by_hand.kubeconfig()
    shown = millpond("status", "--kubeconfig", config)
    assert "delays" in shown.out and "RollingOut" in shown.out and "2/3" in shown.out
    assert "namespace" not in shown.out.splitlines()[0]
    everywhere = millpond("status", "-A", "--kubeconfig", config)
    assert by_hand.namespace in everywhere.out
    empty = millpond("status", "-n", "kube-system", "--kubeconfig", config)
    assert empty.out == "There is no StreamApp in namespace 'kube-system'.\n"
