"""`millpond logs`: through a real API server from a stub of a node, and how logs are merged and followed."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from millpond.cli.cluster.printable import printable_line
from millpond.cli.logs.containers import Container, container_of, task_worker
from millpond.cli.logs.follow import Follower
from millpond.cli.logs.lines import Line, Printer, merged, parsed
from tests.cli.cluster.conftest import ByHand, eventually, served
from tests.cli.cluster.samples import ASSIGNMENT, pod, pod_status
from tests.cli.conftest import Ended, Millpond

LOGS = {
    "delays-0": b"2026-02-02T02:40:01.5Z first of 0\n2026-02-02T02:40:03Z third of 0\n",
    "delays-1": b"2026-02-02T02:40:02Z second, of 1\n",
    "delays-2": b"2026-02-02T02:39:00Z the crash of 2\n",
}


@pytest.fixture
def node(by_hand: ByHand, host_address: str):
    """A stub of the pods' node, with the logs that it was asked for."""

    def answer(path: str, query: dict[str, str]):
        _, kind, namespace, name, container = path.split("/")
        assert (kind, namespace, container) == ("containerLogs", by_hand.namespace, "worker")
        if query.get("previous") == "true":
            return 200, b"2026-02-02T02:38:00Z the log before\n"
        return 200, LOGS[name]

    certificate = by_hand.server.authority.server(f"kubelet-{by_hand.namespace}", host_address)
    with served(answer, host_address, certificate) as stub:
        by_hand.node(host_address, stub.port)
        yield stub


def _lines(ended: Ended) -> list[str]:
    assert ended.status == 0, ended.err
    return ended.out.splitlines()


def test_logs_of_workers_are_merged_by_time(by_hand: ByHand, node, millpond: Millpond) -> None:
    """Each line stands behind its worker; a worker that does not run is remarked on standard error."""
    shown = millpond("logs", "delays", "--since", "10m", "--tail", 5, "--kubeconfig", by_hand.kubeconfig())
    assert _lines(shown) == [
        "delays-2 | the crash of 2",
        "delays-0 | first of 0",
        "delays-1 | second, of 1",
        "delays-0 | third of 0",
    ]
    assert "delays-2 | the container does not run: CrashLoopBackOff" in shown.err
    asked = [query for _, query, _ in node.requests]
    assert all(each["sinceSeconds"] == "600" and each["tailLines"] == "5" for each in asked)


def test_workers_are_chosen_by_name_and_by_task(by_hand: ByHand, node, millpond: Millpond) -> None:
    """0_3 is assigned to delays-1, though delays-2 owns it still."""
    config = by_hand.kubeconfig()
    assert _lines(millpond("logs", "delays", "--worker", "1", "--kubeconfig", config)) == ["delays-1 | second, of 1"]
    by_task = millpond("logs", "delays", "--task", "0_3", "--timestamps", "--kubeconfig", config)
    assert _lines(by_task) == ["delays-1 | 2026-02-02T02:40:02.000000000Z second, of 1"]
    wrong = millpond("logs", "delays", "--task", "1_0", "--kubeconfig", config)
    assert wrong.status == 1 and "has no task '1_0'" in wrong.err
    wrong = millpond("logs", "delays", "--worker", "delays-9", "--kubeconfig", config)
    assert wrong.status == 1 and "has no worker 'delays-9': did you mean" in wrong.err


def test_log_before_a_recent_crash_comes_first(by_hand: ByHand, node, millpond: Millpond) -> None:
    """A container that was started again has a new log; the reason is in the one before."""
    status = pod_status(ready=True, restarts=1)
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2999-01-01T00:00:00Z"}
    status["containerStatuses"][0]["lastState"]["terminated"] = ended
    by_hand.api.patch("Pod", by_hand.namespace, "delays-1", {"status": status}, subresource="status")
    shown = millpond("logs", "delays", "--worker", "delays-1", "--kubeconfig", by_hand.kubeconfig())
    assert _lines(shown) == ["delays-1 | the log before", "delays-1 | second, of 1"]
    assert "the container before this one ended: OOMKilled (status 137)" in shown.err


def test_missing_right_to_logs_is_named(by_hand: ByHand, millpond: Millpond) -> None:
    """pods/log is a right of its own."""
    user = by_hand.user(
        "viewer",
        {"apiGroups": ["millpond.dev"], "resources": ["streamapps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    )
    for options in ([], ["-f"]):
        shown = millpond("logs", "delays", "--kubeconfig", user, *options)
        assert shown.status == 1
        assert "lacks the right to get pods/log in namespace" in shown.err


class Feed:
    """Containers and logs that a test controls."""

    def __init__(self) -> None:
        self.now: dict[str, Container] = {}
        self.logs: dict[str, queue.SimpleQueue[bytes | None]] = {}
        self.opened: list[tuple[str, int | None]] = []

    @contextlib.contextmanager
    def open(self, worker: str, *, since_seconds: int | None) -> Iterator[Iterator[bytes]]:
        self.opened.append((worker, since_seconds))
        yield iter(self.logs[worker].get, None)

    def put(self, worker: str, instance: str, **fields) -> None:
        self.logs[worker] = queue.SimpleQueue()
        self.now[worker] = Container(
            worker, fields.pop("uid", "u"), instance, **{"running": True, "has_log": True, **fields}
        )


@pytest.fixture
def followed(monkeypatch, capsys):
    monkeypatch.setattr("millpond.cli.logs.follow._POLL_S", 0.05)
    feed, over = Feed(), threading.Event()
    said: list[str] = []
    printer = Printer([], timestamps=False)
    monkeypatch.setattr(printer, "line", lambda line: said.append(f"{line.worker}: {line.text}"))
    monkeypatch.setattr(printer, "note", lambda worker, text: said.append(f"({worker}: {text})"))
    follower = Follower(lambda: dict(feed.now), feed.open, printer, 600)
    thread = threading.Thread(target=lambda: follower.run(stop=over.is_set))

    def start() -> None:
        thread.start()

    yield feed, said, start
    over.set()
    for each in feed.logs.values():
        each.put(None)
    thread.join(60)


def test_followed_containers_are_those_that_replace_others(followed) -> None:
    """A restarted container and a new pod are followed from their beginning; no line is shown twice."""
    feed, said, start = followed
    feed.put("a-0", "u 0")
    feed.logs["a-0"].put(b"2026-02-02T02:40:01Z one")
    start()
    eventually(lambda: said == ["a-0: one"], "the first line is shown")
    old = feed.logs["a-0"]
    feed.put("a-0", "u 1", crash="Error (status 1)")
    feed.logs["a-0"].put(b"2026-02-02T02:40:01Z one")
    feed.logs["a-0"].put(b"2026-02-02T02:40:02Z two")
    old.put(None)
    eventually(lambda: said[-1] == "a-0: two", "the restarted container is followed")
    assert said[1:] == ["(a-0: the container was started again after Error (status 1))", "a-0: two"]
    old = feed.logs["a-0"]
    feed.put("a-0", "v 0", uid="v")
    feed.logs["a-0"].put(b"2026-02-02T02:40:03Z three")
    old.put(None)
    eventually(lambda: said[-1] == "a-0: three", "the new pod is followed")
    assert feed.opened[0] == ("a-0", 600)
    assert feed.opened[-1] == ("a-0", None), "all of a new pod's log is new"


def test_task_is_followed_to_another_worker(followed) -> None:
    """What is no longer chosen is not shown any more; what has no log yet is remarked once."""
    feed, said, start = followed
    feed.put("a-0", "u 0")
    start()
    eventually(lambda: len(feed.opened) == 1, "it is followed")
    feed.put("a-1", "w 0", uid="w", has_log=False, running=False, waits_for="ImagePullBackOff")
    eventually(lambda: said == ["(a-1: no log yet: ImagePullBackOff)"], "it is remarked")
    first = feed.logs["a-0"]
    del feed.now["a-0"]
    feed.put("a-1", "w 1", uid="w")
    feed.logs["a-1"].put(b"2026-02-02T02:40:02Z of 1")
    eventually(lambda: said[-1] == "a-1: of 1", "the other worker is followed")
    first.put(b"2026-02-02T02:40:03Z late")
    feed.logs["a-1"].put(b"2026-02-02T02:40:04Z of 1 again")
    eventually(lambda: said[-1] == "a-1: of 1 again", "it goes on")
    assert "a-0: late" not in said


def test_lines_are_merged_by_time_with_any_number_of_digits() -> None:
    """Kubernetes leaves out zeros at the end of a time."""
    one = [parsed("a", b"2026-02-02T02:40:01.5Z x"), parsed("a", b"2026-02-02T02:40:02Z z")]
    other = [parsed("b", b"2026-02-02T02:40:01.500000001Z y"), Line("2026-02-02T02:40:02.1Z", "b", "last")]
    assert [line.text for line in merged([one, other])] == ["x", "y", "z", "last"]


def test_lines_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours stay and end with the line; titles, clipboards, cursors and turned text do not get through."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    printer = Printer(["a"], timestamps=False)
    text = "\x1b[1;31mred\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b1A\u202etxt\rover\r"
    printer.line(parsed("a", b"2026-02-02T02:40:01Z " + text.encode()))
    out = capsys.readouterr().out
    assert "red\ufffd]52;c;ZXZpbA==\ufffd\ufffd[2J\ufffd1A\ufffdtxt\ufffdover" in out
    assert printable_line(text).startswith("\x1b[1;31mred")
    assert printable_line(text).endswith("over\x1b[0m")
    assert printable_line("plain\ttext") == "plain\ttext"


def test_container_of_a_pod_is_the_workers() -> None:
    """Its state tells whether there is a log, and how the one before ended."""
    made = pod("delays-0", "shop")
    made["metadata"]["uid"] = "u"
    assert not container_of(made).has_log
    crashing = container_of(made | {"status": pod_status(ready=False, restarts=3, waiting="CrashLoopBackOff")})
    assert (crashing.has_log, crashing.running, crashing.waits_for) == (True, False, "CrashLoopBackOff")
    restarted = container_of(made | {"status": pod_status(ready=True, restarts=3)})
    assert restarted.crash == "Error (status 1)"
    assert restarted.instance != crashing.instance
    assert task_worker(ASSIGNMENT, "0_3") == "delays-1"
    assert task_worker(ASSIGNMENT, "7_7") == ""
