"""Say in one form what is to be known of an agent host: what is entered where, and what its hooks say.

Each host is described by a module of its own. What installing needs is loaded only for that: a hook runs after every
step of an agent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from intercom.hosts.parts import Part

Moment: TypeAlias = Literal["start", "prompt", "tool", "stop", "rewake", "call", "agent", "end"]
"""What an event of a host means to us: a session begins; the person or somebody else prompts; tools have run; the model
wants to stop; wait and wake it; a tool of ours is about to be called; a subagent begins or ends; the session ends."""

Command: TypeAlias = Callable[..., tuple[str, list[str]]]
"""Returns the program and the arguments that run us with the given words."""


class Wish(NamedTuple):
    """Say how a host is to be installed into."""

    environ: Mapping[str, str]
    command: Command
    home: str | None = None
    """The home the person named; without one the usual rule finds it."""
    approve: bool = False
    """Whether the host is told to let our tools be called without asking."""
    file: Path | None = None
    """The file of a host that is not known by name."""

    @property
    def user(self) -> Path:
        """Return the directory of the user."""
        return Path(self.environ.get("HOME") or os.path.expanduser("~"))

    def run(self, *words: str) -> list[str]:
        """Return the command line that runs us with these words in the home the person named."""
        program, arguments = self.command(*words, *(() if self.home is None else ("--home", self.home)))
        return [program, *arguments]

    def place(self, variable: str, *standard: str) -> Path:
        """Return the directory that a variable names, else one below that of the user."""
        named = self.environ.get(variable, "")
        return Path(os.path.abspath(os.path.expanduser(named))) if named.strip() else self.user.joinpath(*standard)


class Facts(NamedTuple):
    """Describe a host."""

    name: str
    title: str
    directory: Callable[[Wish], Path]
    """Where its settings lie, whether or not it is there."""
    program: str | None
    """What it is called on the search path."""
    parts: Callable[[Wish], list[Part]]
    """What is entered and where; raises ``UsageError`` when the wish lacks something."""
    after: str
    """What a person has to know or to do after installing."""
    moments: Mapping[str, Moment] = {}
    """What its hook events mean to us; others mean nothing."""
    output: Callable[[str, Moment, str], dict[str, Any]] | None = None
    """Makes of event, moment and text what a hook prints."""
    session_variable: str | None = None
    """The variable of a hook that names the session, where the event does not."""
    agent_is_session: bool = False
    """Whether a subagent is a session of its own, with an adapter of its own."""


NAMES = ("claude", "codex", "opencode", "gemini", "mcp")
"""Hosts that are described by a module here."""
HOOKED = ("claude", "codex", "gemini")
"""Those that run a command at their events."""


def facts(name: str) -> Facts:
    """Return what is known of a host, one of ``NAMES``."""
    found: Facts = import_module(f"intercom.hosts.{'generic' if name == 'mcp' else name}").FACTS
    return found
