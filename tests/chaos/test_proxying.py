"""Cut connections behave like networks."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Iterator

import pytest

from tests.chaos.proxying import Cut, Proxies, Proxy
from tests.support.kafka import eventually


class _Echo:
    """A server that returns every line, and remembers it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(100):
                    self.heard.append(data)
                    client.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[_Echo]:
    made = _Echo()
    yield made
    made.close()


@pytest.fixture
def proxy(echo: _Echo) -> Iterator[Proxy]:
    with Proxies() as proxies:
        yield proxies.before(lambda: echo.port)


def _connected(proxy: Proxy) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), 60)
    client.sendall(b"hello")
    assert client.recv(100) == b"hello"
    return client


def _silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(60)
    return False


def test_proxy_forwards_bytes_both_ways(proxy: Proxy) -> None:
    """Without a cut, a proxy changes nothing."""
    with _connected(proxy):
        pass


@pytest.mark.parametrize(("cut", "heard"), [(Cut.UP, False), (Cut.BOTH, False), (Cut.DOWN, True)])
def test_delayed_bytes_arrive_late(proxy: Proxy, echo: _Echo, cut: Cut, heard: bool) -> None:
    """During a cut no answers arrive, and requests only if just the answers are cut; afterwards everything arrives."""
    with _connected(proxy) as client:
        proxy.cut(cut)
        # The proxy cuts in its own thread.
        eventually(lambda: not (proxy._up.is_set() and proxy._down.is_set()), "the cut holds", 30)
        client.sendall(b"late")
        if heard:
            eventually(lambda: b"late" in echo.heard, "the request gets through", 30)
        assert _silent(client)
        assert (b"late" in echo.heard) is heard
        proxy.mend()
        assert client.recv(100) == b"late"


def test_reset_closes_connections_until_it_is_lifted(proxy: Proxy) -> None:
    """Connections are reset at once, new ones too; afterwards they are accepted again."""
    with _connected(proxy) as client:
        proxy.cut(Cut.RESET)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    # The reset may reach the new connection while it is being established.
    with pytest.raises(ConnectionResetError), socket.create_connection(("127.0.0.1", proxy.port), 60) as other:
        other.recv(100)
    proxy.mend()
    eventually(lambda: not proxy._resets, "the proxy is mended", 30)
    with _connected(proxy):
        pass


def test_proxies_that_end_leave_no_connection_open(echo: _Echo) -> None:
    """A connection that is established at that moment is closed as well: an open one would fail a later test."""
    for _ in range(6):
        connected, over = threading.Event(), threading.Event()
        with warnings.catch_warnings(record=True) as told, contextlib.ExitStack() as stack:
            warnings.simplefilter("always")
            with Proxies() as proxies:
                proxy = proxies.before(lambda: echo.port)
                first = socket.create_connection(("127.0.0.1", proxy.port), 60)
                client = threading.Thread(target=_connect_on_and_on, args=(proxy.port, connected, over))
                stack.callback(client.join)
                stack.callback(over.set)
                stack.enter_context(first)
                first.sendall(b"x")
                first.recv(1)
                client.start()
                assert connected.wait(30)
        gc.collect()
        assert [str(each.message) for each in told] == []


def _connect_on_and_on(port: int, connected: threading.Event, over: threading.Event) -> None:
    with contextlib.ExitStack() as mine:
        while not over.is_set():
            try:
                mine.enter_context(socket.create_connection(("127.0.0.1", port), 0.5)).send(b"x")
                connected.set()
            except OSError:
                break
        over.wait()
