"""Know one run of a hook: which host, which event, for which session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from intercom.hosts.events import HookEvent
from intercom.hosts.facts import Facts, Moment
from intercom.paths import Paths


class Call(NamedTuple):
    """Hold one run of a hook."""

    facts: Facts
    name: str
    """Of the event, as the host calls it."""
    moment: Moment
    event: HookEvent
    paths: Paths
    environ: Mapping[str, str]

    @property
    def session(self) -> str:
        """Return the session of the host, empty when it is not told."""
        variable = self.facts.session_variable
        return self.event.session or (self.environ.get(variable, "") if variable else "")

    @property
    def seat(self) -> str:
        """Return what stands for the identity in a host whose subagents are sessions: the subagent or the session."""
        return (self.event.agent if self.facts.agent_is_session else "") or self.session

    def request(self, op: str, **more: Any) -> dict[str, Any]:
        """Return a request to the adapter; what the host did not tell is left out."""
        about = {"session": self.session, "agent": self.event.agent}
        return {"op": op, **{name: value for name, value in about.items() if value}, **more}

    def output(self, text: str) -> dict[str, Any]:
        """Return a text in the form of the host."""
        assert self.facts.output is not None, "a host without hooks has no moments"
        return self.facts.output(self.name, self.moment, text)
