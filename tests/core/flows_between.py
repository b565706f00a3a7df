"""Play a flow at one broker whose worker is at another one."""

from __future__ import annotations

from typing import Any

from intercom.limits import SECOND_MS, Limits
from tests.core.cluster import Cluster
from tests.core.flow_play import COORDINATOR, WORKER, steps_of
from tests.core.harness import INFO, World
from tests.core.mail import PEER, Agent, enter, reattach

LIMITS = Limits()


class Between:
    """Hold two brokers, a coordinator called ``boss`` at ``a`` and a worker called ``worker`` at ``b``."""

    def __init__(
        self, names: str = "ab", *, features: tuple[str, ...] = WORKER, limits: Limits = LIMITS, **member: Any
    ) -> None:
        self.cluster = Cluster(names, limits=limits)
        self.boss = self.coordinator("a")
        self.worker = self.work_as("b", "worker", features=features, **member)
        self.count = 0
        self.kept: dict[tuple[World, int], list[dict[str, Any]]] = {}
        """What came to a session beside its answers."""
        self.run(LIMITS.announce_ms)

    def work_as(self, node: str, name: str | None, *, features: tuple[str, ...] = WORKER, **member: Any) -> Agent:
        """Let a worker come at a broker, one that acts under an address once the others know."""
        world = self.cluster[node]
        conn = world.connect(PEER)
        session = {**INFO, **({} if name is None else {"name": name})}
        request = {"returnAddress": f"return-{node}-{conn}", "acknowledgesReceipt": True, "kind": "custom", **member}
        granted = {"features": list(features), "clientProtocolVersion": "1.0"}
        answers = world.send(conn, type="register", session=session, **granted, **request)
        self.cluster.run()
        answers += world.got(conn)
        assert answers[0]["type"] == "registered", answers
        return Agent(world, conn, answers[0]["sessionId"], answers)

    def coordinator(self, node: str, name: str = "boss") -> Agent:
        """Let a coordinator come at a broker."""
        return enter(self.cluster[node], name, features=COORDINATOR)

    def run(self, ms: int = 0) -> None:
        """Let time pass in steps, and bring everything where it is to go in each."""
        step = max(SECOND_MS, ms // 60)
        while ms > step:
            self.cluster.run(step)
            ms -= step
        self.cluster.run(ms)

    def ask(self, by: Agent, kind: str, *, ms: int = 0, **members: Any) -> dict[str, Any]:
        """Write a request and return its answer, which comes within ``ms``."""
        request_id = self.write(by, kind, **members)
        self.run(ms)
        return self.answer(by, request_id)

    def write(self, by: Agent, kind: str, **members: Any) -> str:
        """Write a request and return its id."""
        self.count += 1
        request_id = f"q{self.count}"
        self._keep(by).extend(by.write(kind, requestId=request_id, **members))
        return request_id

    def _keep(self, agent: Agent) -> list[dict[str, Any]]:
        return self.kept.setdefault((agent.world, agent.conn), [])

    def answer(self, by: Agent, request_id: str) -> dict[str, Any]:
        """Return the answer to a request."""
        kept = self._keep(by)
        kept += by.got()
        found = next(frame for frame in kept if frame.get("requestId") == request_id)
        kept.remove(found)
        return found

    def is_answered(self, by: Agent, request_id: str) -> bool:
        """Tell whether a request was answered."""
        kept = self._keep(by)
        kept += by.got()
        return any(frame.get("requestId") == request_id for frame in kept)

    def begin(self, *steps: Any, target: str = "worker", flow_id: str = "f", by: Agent | None = None) -> None:
        """Write a flow and start it."""
        asker, written = by or self.boss, steps_of(*steps or ("one", "two"))
        assert self.ask(asker, "flow_create", flowId=flow_id, target=target, steps=written)["type"] == "flow"
        assert self.ask(asker, "flow_start", flowId=flow_id)["type"] == "flow"

    def control(self, what: str, *, flow_id: str = "f", **members: Any) -> dict[str, Any]:
        """Let the coordinator change a flow."""
        return self.ask(self.boss, f"flow_{what}", flowId=flow_id, **members)

    def flow(self, flow_id: str = "f", by: Agent | None = None) -> dict[str, Any]:
        """Return the whole status of a flow."""
        found = self.ask(by or self.boss, "flow_status", flowId=flow_id)
        assert found["type"] == "flow", found
        return found

    def states(self, flow_id: str = "f", by: Agent | None = None) -> tuple[str, list[str]]:
        """Return the state of a flow and those of its steps."""
        flow = self.flow(flow_id, by)["flow"]
        return flow["state"], [step["state"] for step in flow["steps"]]

    def dispatches(self, worker: Agent | None = None) -> list[dict[str, Any]]:
        """Return the messages with steps that a worker got since the last look."""
        found = worker or self.worker
        frames = self.kept.pop((found.world, found.conn), []) + found.got()
        steps = [frame for frame in frames if frame["type"] == "message" and "flowDispatch" in frame["message"]]
        self._keep(found).extend(frame for frame in frames if frame not in steps)
        return steps

    def take(self, worker: Agent | None = None) -> str:
        """Let a worker confirm the one step it got; return the id of the dispatch."""
        found = worker or self.worker
        (frame,) = self.dispatches(found)
        found.confirm(frame["message"]["id"])
        self.run()
        dispatch_id: str = frame["message"]["flowDispatch"]["dispatchId"]
        return dispatch_id

    def report(
        self, dispatch_id: str, outcome: str = "completed", *, by: Agent | None = None, ms: int = 0, **more: Any
    ) -> dict[str, Any]:
        """Let a worker report; return the answer."""
        members = {"dispatchId": dispatch_id, "outcome": outcome, "summary": "done", **more}
        return self.ask(by or self.worker, "flow_report", ms=ms, **members)

    def crash(self, name: str, **how: Any) -> None:
        """Kill a broker and start it again; whoever was there reattaches."""
        self.cluster.crash(name, **how)
        if name == "a":
            self.boss = self.back(self.boss)
        else:
            self.worker = self.back(self.worker)
        self.run(LIMITS.announce_ms)

    def back(self, session: Agent) -> Agent:
        """Let a session reattach."""
        again = reattach(session.world, session)
        assert again.first[0]["type"] == "session_reattached", again.first
        self._keep(again).extend(again.first[1:])
        again.first = session.first  # its token
        self.run()
        return again

    def posted(self, kind: str) -> int:
        """Return how many letters of a kind the engine was given."""
        return sum(post.kind == kind for post in self.cluster.posts)
