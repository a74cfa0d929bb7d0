"""A real S3 server for tests, where one is installed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker import free_port
from tests.support.programs import versitygw

__all__ = ("KEY", "SECRET", "serving")

KEY, SECRET = "AKIDEXAMPLE", "s3cr3t-of-the-test"


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve the directories below `root` as buckets; yield the endpoint's URL. Skip the test without a server."""
    pytest.importorskip("obstore")
    try:
        program = versitygw.find()
    except versitygw.GoProgramMissing as missing:
        pytest.skip(str(missing))
    port = free_port()
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    server = subprocess.Popen(
        [program, "--port", f"127.0.0.1:{port}", "posix", "--nometa", str(root)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the S3 server does not listen"
                assert server.poll() is None, "the S3 server ended"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
