"""The load and the drawing in a worker's heartbeats."""

from __future__ import annotations

from millpond.protocol import Heartbeat
from millpond.protocol.loads import WorkerLoad
from millpond.protocol.overview import NodeOverview, TopologyOverview
from tests.coordinator.support import Reply, Scripted, answer, client, connected, eventually, http
from tests.simulation.running import simulate

GRAPH = TopologyOverview(nodes=(NodeOverview(name="topic flights", kind="topic"),))


class Coordinator(Scripted):
    """Answers every heartbeat at once.

    Attributes:
        send_graph: whether it asks for the drawing.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.send_graph = False

    async def _answer(self, heartbeat: Heartbeat) -> Reply:
        return http(answer(heartbeat, revision=heartbeat.sequence, send_graph=self.send_graph))


def test_each_measurement_is_sent_once() -> None:
    """Urgent heartbeats between two measurements stay small."""
    loads = [WorkerLoad(1_000), WorkerLoad(2_000)]

    async def scenario() -> None:
        async with (
            Coordinator().serving() as server,
            connected(client(server.url, load=lambda: loads[len(server.heartbeats) // 5 % 2])),
        ):
            await eventually(lambda: len(server.heartbeats) >= 12, "heartbeats")
        sent = [each.load for each in server.heartbeats[:12]]
        assert [each for each in sent if each is not None] == [loads[0], loads[1], loads[0]]

    simulate(scenario())


def test_the_drawing_goes_with_the_topology_and_on_request() -> None:
    """It is large, and changes only with the program."""

    async def scenario() -> None:
        async with Coordinator().serving() as server, connected(client(server.url, graph=GRAPH)):
            await eventually(lambda: len(server.heartbeats) >= 5, "heartbeats")
            assert [each.graph for each in server.heartbeats[:5]] == [GRAPH, None, None, None, None]
            server.send_graph = True
            await eventually(lambda: server.heartbeats[-1].graph == GRAPH, "it is sent on request")
            assert server.heartbeats[-1].topology is None
            server.send_graph = False
            await eventually(lambda: server.heartbeats[-1].graph is None, "it is sent no more")

    simulate(scenario())
