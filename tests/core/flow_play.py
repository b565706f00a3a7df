"""Play those who have to do with flows: a coordinator, workers with and without a to-do list, a person."""

from __future__ import annotations

from typing import Any

from intercom.core.connections import PeerCredentials
from tests.core.harness import INFO, World
from tests.core.mail import AGENT, PEER, Agent, enter, operator, reattach

COORDINATOR = (*AGENT, "flow.control")
WORKER = (*AGENT, "flow.report")
TODO_WORKER = (*WORKER, "flow.todo_projection", "flow.todo_mutation")
DISPATCH = "flow-dispatch/"


class Play:
    """Hold a world with one coordinator and one worker called ``worker``."""

    def __init__(self, world: World | None = None, *, features: tuple[str, ...] = WORKER) -> None:
        self.world = world or World()
        self.boss = enter(self.world, "boss", features=COORDINATOR)
        self.worker = self.work_as("worker", features=features)
        self.count = 0
        self.kept: dict[int, list[dict[str, Any]]] = {}
        """What came to a session beside its answers, by connection."""

    def work_as(self, name: str, *, features: tuple[str, ...] = WORKER, **more: Any) -> Agent:
        """Let a worker come."""
        return enter(self.world, name, features=features, **more)

    def ask(self, kind: str, *, by: Agent | None = None, **members: Any) -> dict[str, Any]:
        """Write a request and return its answer."""
        self.count += 1
        request_id = f"q{self.count}"
        asker = by or self.boss
        kept = self.kept.setdefault(asker.conn, [])
        kept += asker.write(kind, requestId=request_id, **members)
        self.world.pass_time(0)
        kept += asker.got()
        answer = next(frame for frame in kept if frame.get("requestId") == request_id)
        kept.remove(answer)
        return answer

    def create(self, flow_id: str = "f", *steps: Any, target: str = "worker", **more: Any) -> dict[str, Any]:
        """Write a flow; a step is an id or a whole object."""
        return self.ask("flow_create", flowId=flow_id, target=target, steps=steps_of(*steps or ("one", "two")), **more)

    def begin(self, flow_id: str = "f", *steps: Any, target: str = "worker") -> None:
        """Write a flow and start it."""
        assert self.create(flow_id, *steps, target=target)["type"] == "flow"
        assert self.ask("flow_start", flowId=flow_id)["type"] == "flow"

    def flow(self, flow_id: str = "f") -> dict[str, Any]:
        """Return the whole status of a flow."""
        answer = self.ask("flow_status", flowId=flow_id)
        assert answer["type"] == "flow", answer
        return answer

    def states(self, flow_id: str = "f") -> tuple[str, list[str]]:
        """Return the state of a flow and those of its steps."""
        flow = self.flow(flow_id)["flow"]
        return flow["state"], [step["state"] for step in flow["steps"]]

    def dispatches(self, worker: Agent | None = None) -> list[dict[str, Any]]:
        """Return the messages with steps that a worker got since the last look."""
        worker = worker or self.worker
        frames = self.kept.pop(worker.conn, []) + worker.got()
        return [frame for frame in frames if frame["type"] == "message" and "flowDispatch" in frame["message"]]

    def take(self, worker: Agent | None = None) -> str:
        """Let a worker confirm the one step it got; return the id of the dispatch."""
        worker = worker or self.worker
        (frame,) = self.dispatches(worker)
        worker.confirm(frame["message"]["id"])
        self.world.pass_time(0)
        dispatch_id: str = frame["message"]["flowDispatch"]["dispatchId"]
        return dispatch_id

    def report(self, dispatch_id: str, outcome: str = "completed", *, by: Agent | None = None, **more: Any) -> Any:
        """Let a worker report; return the answer."""
        members = {"dispatchId": dispatch_id, "outcome": outcome, "summary": "done", **more}
        return self.ask("flow_report", by=by or self.worker, **members)

    def restart(self) -> None:
        """Kill the broker and start another on the same disk; nobody is connected."""
        self.world.start()

    def back(self, session: Agent) -> Agent:
        """Let a session reattach."""
        again = reattach(self.world, session)
        assert again.first[0]["type"] == "session_reattached", again.first
        self.kept[again.conn] = again.first[1:]
        again.first = session.first  # its token
        self.world.pass_time(0)
        return again

    def born_again(self, session: Agent, name: str = "worker", *, features: tuple[str, ...] = WORKER) -> Agent:
        """Let the process of a session start again and come back under its id."""
        peer = PeerCredentials(pid=PEER.pid + 1, uid=1000, gid=1000, started=8)
        return enter(
            self.world,
            name,
            features=features,
            peer=peer,
            preferredSessionId=session.id,
            ownerToken=session.token,
        )

    def born_again_unheard(self, session: Agent) -> Agent:
        """Do the same while nothing is committed, so that nobody is told."""
        conn = self.work_as_unheard("worker", preferredSessionId=session.id, ownerToken=session.token)
        return Agent(self.world, conn, session.id, session.first)

    def work_as_unheard(self, name: str, **members: Any) -> int:
        """Let a worker come while nothing is committed; return its connection."""
        conn = self.world.connect(PeerCredentials(pid=PEER.pid + 1, uid=1000, gid=1000, started=8))
        request = {
            "type": "register",
            "session": {**INFO, "name": name},
            "returnAddress": f"return-{conn}",
            "acknowledgesReceipt": True,
            "features": list(WORKER),
            "clientProtocolVersion": "1.0",
            "kind": "custom",
            **members,
        }
        assert self.world.send(conn, **request) == []
        return conn

    def person(self) -> Agent:
        """Let a person come."""
        return operator(self.world)


def steps_of(*steps: Any) -> list[dict[str, Any]]:
    """Return steps as they go on the wire."""
    return [{"stepId": step, "prompt": f"do {step}"} if isinstance(step, str) else step for step in steps]


def gated(step_id: str = "one", **gates: Any) -> dict[str, Any]:
    """Return a step that is bound to a to-do item."""
    return {"stepId": step_id, "prompt": f"do {step_id}", "todoBinding": gates}


def todo(status: str = "completed", item: str = "t1") -> dict[str, Any]:
    """Return the member of a report about a to-do item."""
    return {"todoOutcome": {"todoId": item, "todoStatus": status}}
