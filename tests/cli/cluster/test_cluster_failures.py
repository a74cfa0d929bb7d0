"""One clear sentence for each way in which a cluster cannot be asked."""

from __future__ import annotations

import io
import json
import sys
import threading
from pathlib import Path

import pytest

from millpond.cli.cluster import client
from millpond.cli.cluster.failures import failure
from tests.cli.cluster.conftest import ByHand, served
from tests.cli.cluster.samples import APP
from tests.cli.conftest import Ended, Millpond
from tests.cluster.certificates import Access


def _config(path: Path, server: str, user: object = None, **more: object) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "current-context": "here",
        **more,
    }
    path.write_text(json.dumps(config))
    return path


def _one_sentence(ended: Ended, *parts: str) -> None:
    text = " ".join(ended.err.split())
    assert ended.status == 1, ended
    assert text.startswith("millpond: ")
    assert "Traceback" not in text
    for part in parts:
        assert part in text
    assert ended.out == ""


def test_missing_kubeconfig_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """The sentence has the file and the ways to name another one."""
    path = tmp_path / "none"
    _one_sentence(millpond("status", "delays", "--kubeconfig", path), f"no kubeconfig at {path}", "--kubeconfig")


def test_default_kubeconfig_is_that_of_the_environment(millpond: Millpond, tmp_path: Path, monkeypatch) -> None:
    """As with kubectl, $KUBECONFIG names the file, or several of them."""
    first = _config(tmp_path / "one", "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'two'}")
    _one_sentence(millpond("status", "--kubernetes"), "http://127.0.0.1:1")


def test_without_a_cluster_option_no_cluster_is_asked(millpond: Millpond, tmp_path: Path, monkeypatch) -> None:
    """A kubeconfig alone changes nothing: a name is a session of this machine."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    (tmp_path / "broken").write_text("{")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    _one_sentence(millpond("status", "delays"), "of 'delays' runs on this machine", "or add --kubernetes")
    assert millpond("status").status == 0


def test_kubeconfig_that_cannot_be_read_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """Broken YAML, no current context, an unknown context."""
    path = tmp_path / "config"
    path.write_text("{")
    _one_sentence(millpond("status", "--kubeconfig", path), f"kubeconfig {path} cannot be used", "correct it")
    _config(path, "http://127.0.0.1:1")
    _one_sentence(
        millpond("status", "--kubeconfig", path, "--context", "there"), "context 'there' is not in", "which has: here"
    )
    content = json.loads(path.read_text())
    del content["current-context"]
    path.write_text(json.dumps(content))
    _one_sentence(millpond("status", "--kubeconfig", path), "has no current context: name one by --context")
    _one_sentence(millpond("status", "--kubeconfig", path, "--context", "here"), "cannot reach the cluster")


def test_cluster_that_does_not_answer_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """The sentence has the address of the API server."""
    path = _config(tmp_path / "config", "https://127.0.0.1:1")
    _one_sentence(millpond("tasks", "delays", "--kubeconfig", path), "cannot reach the cluster at https://127.0.0.1:1")


def test_login_plugin_is_run(millpond: Millpond, tmp_path: Path) -> None:
    """The token of a kubeconfig's plugin is sent; a plugin that fails is named, and its token never shown."""
    script = tmp_path / "login"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "token-of-plugin"},
    }
    plugin = {"apiVersion": credential["apiVersion"], "command": sys.executable, "args": [str(script)]}
    script.write_text(f"print({json.dumps(credential)!r})")
    answer = {"metadata": {}, "items": [{**APP, "metadata": {"name": "delays", "namespace": "shop"}}]}
    with served(lambda *_: (200, answer)) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}", {"exec": plugin})
        shown = millpond("status", "--kubeconfig", path)
    assert shown.status == 0, shown.err
    assert {headers["authorization"] for *_, headers in stub.requests} == {"Bearer token-of-plugin"}
    script.write_text("import sys; sys.exit('session expired')")
    _one_sentence(millpond("status", "--kubeconfig", path), "login plugin", "session expired", "log in again")


def test_missing_definitions_are_told_from_missing_objects(millpond: Millpond, tmp_path: Path) -> None:
    """Without the custom resource definitions, the API server knows no such path."""
    with served(lambda *_: (404, b"404 page not found\n")) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        for command in (["status"], ["status", "delays"], ["logs", "delays"], ["drain", "delays", "0"]):
            _one_sentence(millpond(*command, "--kubeconfig", path), "custom resource definitions are not installed")


def test_answer_of_something_else_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """A portal that answers with a page is no API server."""
    with served(lambda *_: (200, b"<html>")) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        _one_sentence(millpond("status", "delays", "--kubeconfig", path), "the answer is no JSON", "check the address")


def test_hung_operator_does_not_hide_what_the_api_server_knows(
    millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server waits for an operator that does not answer; objects are shown after a short time."""
    monkeypatch.setattr(client, "_SERVICE_TIMEOUT_S", (0.2, 0.2))
    app = {**APP, "metadata": {"name": "delays", "namespace": "shop"}}
    ended = threading.Event()

    def answer(path: str, _: dict[str, str]) -> tuple[int, object]:
        if "/proxy/" in path:
            ended.wait(60)
        if "/streamassignments/" in path:
            return 404, {"message": 'streamassignments.millpond.dev "delays" not found'}
        return 200, app if path.endswith("/delays") else {"items": [app] if path.endswith("/streamapps") else []}

    with served(answer) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        for command in (["status", "delays"], ["status"], ["tasks", "delays"]):
            shown = millpond(*command, "--kubeconfig", path)
            assert shown.status == 0, shown.err
            assert "the operator does not answer (no answer in time)" in shown.out
        ended.set()


def test_console_that_is_something_else_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """The objects are shown, and the API server's address is not blamed."""
    app = {**APP, "metadata": {"name": "delays", "namespace": "shop"}}

    def answer(path: str, _: dict[str, str]) -> tuple[int, object]:
        return 200, b"<html>" if "/proxy/" in path else {"items": [app]}

    with served(answer) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        shown = millpond("status", "--kubeconfig", path)
    assert shown.status == 0, shown.err
    assert "the operator does not answer (its answer is no JSON)" in shown.out


def test_text_of_a_cluster_does_not_control_the_terminal(millpond: Millpond, tmp_path: Path) -> None:
    """Escape sequences in a status or in an error are shown as replacement characters."""
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Odd",
        "message": "\x1b]0;title\x07\x9b2J\u202etxt\nline",
    }
    app = {**APP, "metadata": {"name": "delays", "namespace": "shop"}, "status": {"conditions": [condition]}}

    def answer(path: str, _: dict[str, str]) -> tuple[int, object]:
        if "other" in path:
            return 500, {"kind": "Status", "message": "no \x1b[2J"}
        return (503, {"message": "no endpoints"}) if "/proxy/" in path else (200, {"items": [app]})

    with served(answer) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        shown, failed = (millpond("status", *more, "--kubeconfig", path) for more in ([], ["-n", "other"]))
    assert "\ufffd]0;title\ufffd\ufffd2J\ufffdtxt" in shown.out
    assert "no \ufffd[2J" in failed.err
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*shown.out, *failed.err}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "StreamApp 'delays' has no pods of workers, so there is no log"),
        (["--worker", "1"], "delays-1 of StreamApp 'delays' has no pod"),
        (["--task", "0_0"], "task '0_0' is assigned to no worker that has a pod now"),
    ],
    ids=["all", "worker", "task"],
)
def test_logs_of_an_application_without_pods_say_so(
    millpond: Millpond, tmp_path: Path, options: list[str], said: str
) -> None:
    """As of one that is suspended; nothing at all would look as if it logged nothing."""
    app = {**APP, "metadata": {"name": "delays", "namespace": "shop"}, "spec": {"replicas": 2, "suspended": True}}
    topology = {"subtopologies": [{"id": 0, "partitions": 2}]}

    def answer(path: str, _: dict[str, str]) -> tuple[int, object]:
        if "streamassignments" in path:
            return 200, {"spec": {"topology": topology, "workers": []}}
        return (200, {"items": []}) if "pods" in path else (200, app)

    with served(answer) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        _one_sentence(millpond("logs", "delays", *options, "--kubeconfig", path), said, "millpond status shop/delays")


def test_missing_client_is_named(millpond: Millpond, tmp_path: Path, monkeypatch) -> None:
    """The sentence has the extra to install."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    path = _config(tmp_path / "config", "http://127.0.0.1:1")
    _one_sentence(millpond("status", "--kubeconfig", path), "pip install 'millpond[kubernetes]'")


def test_failures_of_other_kinds_have_the_servers_reason() -> None:
    """Also when it is no Status of Kubernetes."""
    status = json.dumps({"kind": "Status", "message": "the server is overloaded"})
    assert str(failure(429, status, "list pods")).startswith(
        "cannot list pods: the API server answered with status 429"
    )
    assert "the server is overloaded" in str(failure(429, status, "list pods"))
    assert "no reason given" in str(failure(500, b"", "list pods"))
    at_scope = 'User "jo" cannot list resource "streamapps" in API group "millpond.dev" at the cluster scope'
    assert "user 'jo' lacks the right to list streamapps.millpond.dev in all namespaces" in str(
        failure(403, json.dumps({"message": at_scope}), "list StreamApps")
    )


@pytest.mark.parametrize("command", ["status", "tasks", "logs"])
def test_near_names_are_suggested(by_hand: ByHand, millpond: Millpond, command: str) -> None:
    """A misspelled name."""
    _one_sentence(
        millpond(command, "delay", "--kubeconfig", by_hand.kubeconfig()),
        f"there is no StreamApp 'delay' in namespace '{by_hand.namespace}': did you mean 'delays'?",
    )


def test_another_namespace_is_suggested(by_hand: ByHand, millpond: Millpond) -> None:
    """A right name in the wrong namespace; and NAMESPACE/NAME finds it."""
    config = by_hand.kubeconfig()
    ended = millpond("status", "delays", "-n", "default", "--kubeconfig", config)
    _one_sentence(ended, "there is no StreamApp 'delays' in namespace 'default', but in", f"'{by_hand.namespace}'")
    assert millpond("status", f"{by_hand.namespace}/delays", "-n", "default", "--kubeconfig", config).status == 0


def test_missing_right_is_named(by_hand: ByHand, millpond: Millpond) -> None:
    """User, verb, resource and namespace: enough for an administrator."""
    user = by_hand.user("nobody", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    name = f"nobody-{by_hand.namespace}"
    _one_sentence(
        millpond("status", "delays", "--kubeconfig", user),
        f"user '{name}' lacks the right to get streamapps.millpond.dev in namespace '{by_hand.namespace}'",
    )
    _one_sentence(millpond("status", "--kubeconfig", user), "lacks the right to list streamapps.millpond.dev")
    _one_sentence(millpond("status", "-A", "--kubeconfig", user), "streamapps.millpond.dev in all namespaces")


def test_expired_login_is_told(by_hand: ByHand, millpond: Millpond) -> None:
    """A token that the cluster does not accept; and none at all."""
    access = by_hand.server.admin
    expired = by_hand.kubeconfig(Access(access.url, access.ca_file, token="an-expired-token"), "expired")
    ended = millpond("status", "delays", "--kubeconfig", expired)
    _one_sentence(ended, "does not accept the login", "Log in again")
    assert "an-expired-token" not in ended.err
    nobody = by_hand.kubeconfig(Access(access.url, access.ca_file), "anonymous")
    _one_sentence(millpond("status", "delays", "--kubeconfig", nobody), "does not know who you are", "Log in again")


def test_encoding_without_a_character_ends_no_command(millpond: Millpond, tmp_path: Path, monkeypatch) -> None:
    """A terminal or a pipe of another encoding shows an escape in place of the character."""
    app = {"metadata": {"name": "delays", "namespace": "shop"}, "spec": {}, "status": {"phase": "日本"}}
    written = io.BytesIO()
    with served(lambda *_: (200, {"items": [app]})) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
        ended = millpond("status", "--kubeconfig", path)
    assert ended.status == 0, ended.err
    assert b"\\u65e5\\u672c" in written.getvalue()


def test_unknown_worker_of_tasks_is_named(millpond: Millpond, tmp_path: Path) -> None:
    """An empty list would say that the worker has no task. The number of a worker names it, as for drain."""
    app = {**APP, "metadata": {"name": "delays", "namespace": "shop"}}
    saved = {"spec": {"workers": [{"name": "delays-2", "active": ["0_0"], "owns": ["0_0"]}]}}
    answers = {"/delays": app, "/pods": {"items": []}, "/events": {"items": []}}

    def answer(path: str, _: dict[str, str]) -> tuple[int, object]:
        if "/proxy/" in path:
            return 503, {"message": "no endpoints available"}
        if "/streamassignments/" in path:
            return 200, saved
        return 200, next(value for end, value in answers.items() if path.endswith(end))

    with served(answer) as stub:
        path = _config(tmp_path / "config", f"http://127.0.0.1:{stub.port}")
        _one_sentence(millpond("tasks", "delays", "--worker", "w9", "--kubeconfig", path), "no worker 'w9'", "delays-2")
        _one_sentence(millpond("tasks", "delays", "--worker", "dleays-2", "--kubeconfig", path), "did you mean")
        shown = millpond("tasks", "delays", "--worker", "2", "--kubeconfig", path)
    assert shown.status == 0, shown.err
    assert "0_0" in shown.out
