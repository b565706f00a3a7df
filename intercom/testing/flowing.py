"""Let a session in memory write and control flows, and report their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from intercom.client.flowing import StepLike, TodoLike
from intercom.client.flowsteps import FlowStep as _FlowStep
from intercom.client.flowviews import Flow, FlowList, FlowReported
from intercom.limits import REQUEST_MS, WORK_REQUEST_MS

if TYPE_CHECKING:
    from intercom.testing.following import Watching
    from intercom.testing.session import MemorySession


class FlowStep(_FlowStep):
    """Hold a step of a flow that a message brought, and report its outcome.

    Nothing but the report moves the flow on: a receipt does not, nor does an answer to the message.
    """

    __slots__ = ("_flows",)

    def __init__(self, step: _FlowStep, flows: FlowCalls) -> None:
        """Belong to a session."""
        for name in _FlowStep.__slots__:
            setattr(self, name, getattr(step, name))
        self._flows = flows

    def report(
        self,
        outcome: str,
        summary: str,
        resources: Iterable[str] = (),
        *,
        todo: TodoLike | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> FlowReported:
        """Report the outcome; see ``FlowCalls.report``."""
        return self._flows.report(self.dispatch_id, outcome, summary, resources, todo=todo, timeout=timeout)


class FlowCalls:
    """Write, control and look at flows, and report steps of them; a session has them as ``flows``.

    A coordinator (``coordinator=True``) controls the flows of its groups, a control session all. A call that changes a
    flow returns it as it is then; a ``key`` names the request, so that repeating it changes nothing more. Raises
    ``RequestRefused``, whose code says why (protocol 12.7).
    """

    def __init__(self, session: MemorySession) -> None:
        """Belong to a session."""
        self._session = session
        self._core = session._core

    def create(
        self,
        flow_id: str,
        target: str,
        steps: Iterable[StepLike],
        *,
        group: str | None = None,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Write a flow down as a draft; nothing is sent before ``start``.

        Args:
            flow_id: its name for ever.
            target: ``session:ID``, or a name that is looked up when a step is due.
            steps: in their order, 1 to 64: pairs of id and prompt, or mappings that may also hold ``todo_binding``
                (``label``, ``require_completed``, ``conflict_check``) and ``report_timeout_ms``.
            group: the group whose coordinators control it, else the home group of this session.
            key: names the request, else a new one.
            timeout: seconds for the answer; a broker that dies meanwhile is asked again, under the same key.
        """
        return self._session._now(self._core.flows.create(flow_id, target, steps, group, key, timeout))

    def start(
        self,
        flow_id: str,
        *,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Begin a draft."""
        return self._session._now(self._core.flows.start(flow_id, key, timeout))

    def pause(
        self,
        flow_id: str,
        *,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Hand out no further step; one that is under way goes on, and its report counts."""
        return self._session._now(self._core.flows.pause(flow_id, key, timeout))

    def resume(
        self,
        flow_id: str,
        *,
        target: str | None = None,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Go on, with another ``target`` if no step is under way; also with what failed for want of its target."""
        return self._session._now(self._core.flows.resume(flow_id, target, key, timeout))

    def append(
        self,
        flow_id: str,
        after: str,
        steps: Iterable[StepLike],
        *,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Insert steps right behind the one called ``after``; no step behind that may have been tried."""
        return self._session._now(self._core.flows.append(flow_id, after, steps, key, timeout))

    def retry(
        self,
        flow_id: str,
        step_id: str,
        reason: str,
        *,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """Let a step that failed or is ambiguous be tried again."""
        return self._session._now(self._core.flows.retry(flow_id, step_id, reason, key, timeout))

    def cancel(
        self,
        flow_id: str,
        reason: str,
        *,
        key: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Flow:
        """End a flow for good; its worker is not told."""
        return self._session._now(self._core.flows.cancel(flow_id, reason, key, timeout))

    def list(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> FlowList:
        """Return the newest flows this session may control."""
        return self._session._now(self._core.flows.list(timeout))

    def status(
        self,
        flow_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> Flow:
        """Return everything about a flow: prompts, attempts and reports, what it waits for and since when."""
        return self._session._now(self._core.flows.status(flow_id, timeout))

    def collect(
        self,
        *,
        dry_run: bool = False,
        timeout: float = REQUEST_MS / 1000,
    ) -> tuple[str, ...]:
        """Delete the flows that have been over for 30 days, or tell which; return their ids."""
        return self._session._now(self._core.flows.collect(dry_run, timeout))

    def report(
        self,
        dispatch_id: str,
        outcome: str,
        summary: str,
        resources: Iterable[str] = (),
        *,
        todo: TodoLike | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> FlowReported:
        """Report the outcome of a step this session, or another one of its address, was handed.

        Args:
            dispatch_id: of the message that brought it.
            outcome: ``completed`` or ``failed``.
            summary: what was done, or why it could not be; at most 8 KiB.
            resources: references to what came of it, at most 16 of 2 KiB each.
            todo: the id of the to-do item the step is bound to, and its state.
            timeout: seconds for the answer.

        The report is written down before it is sent, on disk for a session with an address; when the answer does not
        come in time it is sent on, by this session or the next one of the address. Reporting the same again is fine and
        sends nothing once the broker has it; another report is refused with ``report_conflict``.
        """
        return self._session._now(self._core.flows.report(dispatch_id, outcome, summary, resources, todo, timeout))

    def step(self, step: _FlowStep) -> FlowStep:
        """Return the step a message brought as one that this session reports."""
        return FlowStep(step, self)

    def watch(self, flow_id: str, *, after: int | str | None = None) -> Watching:
        """Follow a flow, from how it is now or behind a position of an earlier watch; see ``Session.watch``."""
        return self._session.watch(flows=[flow_id], after=after)
