"""A Kubernetes API server in memory, with the real one's rules, for tests that need many of them or much time.

    with MemoryApiServer(background) as server:
        ...  # server.admin is access with all rights, Api(background, server.admin) a client

It serves plain HTTP from the background's event loop and uses no threads. Durations are those of the loop, time stamps
those of `now`.
"""

from tests.cluster.memory.server import MemoryApiServer, SharedMemoryApiServer

__all__ = ("MemoryApiServer", "SharedMemoryApiServer")
