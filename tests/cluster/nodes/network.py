"""The network of a cluster: DNS, and a separate route of each pod that can be cut.

Names that end in `.svc` are routes to the coordinator. They lead to the port in the operator's EndpointSlice, on this
machine, whatever the address.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from typing import Any

from tests.chaos.proxying import Proxy
from tests.cluster.api import AsyncApi, Object

__all__ = ("Network", "Route")

#: The port's name in EndpointSlices of the coordinator, whatever its Service is called.
_PORT = "coordinator"
_HERE: contextvars.ContextVar[Route | None] = contextvars.ContextVar("_HERE", default=None)


class Route:
    """A pod's route to the coordinator."""

    def __init__(self, network: Network) -> None:
        self.proxy = Proxy(asyncio.get_running_loop(), network.port)

    async def open(self) -> None:
        """Use this route in the current task and those that it starts."""
        await self.proxy.start()
        _HERE.set(self)

    def close(self) -> None:
        self.proxy.stop()


class Network:
    """DNS and Services of a cluster, in the background's event loop.

    Args:
        api: reads EndpointSlices.
        namespace: of the coordinator's Service.
        fixed_port: the port of the coordinator, if nobody writes an EndpointSlice.
    """

    def __init__(self, api: AsyncApi, namespace: str, fixed_port: int | None = None) -> None:
        self._api = api
        self._namespace = namespace
        self._fixed_port = fixed_port
        self._slices: dict[str, Object] = {}
        self._following: asyncio.Task[None] | None = None
        self._plain: Any = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._plain = loop.getaddrinfo
        loop.getaddrinfo = self._getaddrinfo  # type: ignore[method-assign]
        self._following = asyncio.create_task(self._api.follow("EndpointSlice", self._seen, self._namespace))

    async def stop(self) -> None:
        asyncio.get_running_loop().getaddrinfo = self._plain  # type: ignore[method-assign]
        assert self._following is not None
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    def port(self) -> int:
        """The present port of the coordinator.

        Raises:
            ConnectionRefusedError: there is none.
        """
        for each in self._slices.values():
            ready = [one for one in each.get("endpoints") or () if one.get("conditions", {}).get("ready") is not False]
            for port in each.get("ports") or () if ready else ():
                if port.get("name") == _PORT:
                    return int(port["port"])
        if self._fixed_port is None:
            raise ConnectionRefusedError(f"the coordinator's Service in {self._namespace} has no endpoint")
        return self._fixed_port

    async def _seen(self, change: str, item: Object) -> None:
        name = item["metadata"]["name"]
        if change == "DELETED":
            self._slices.pop(name, None)
        else:
            self._slices[name] = item

    async def _getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        route = _HERE.get()
        if isinstance(host, str) and host.endswith((".svc", ".svc.cluster.local")):
            if route is None:
                raise socket.gaierror(socket.EAI_NONAME, f"'{host}' is known in pods only")
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", route.proxy.port))]
        return await self._plain(host, port, **options)
