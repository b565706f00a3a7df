"""Describe the session a program wants to be, and make its ``register`` frame."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from msgspec import UNSET

from intercom.client.composing import clean_text
from intercom.errors import UsageError
from intercom.limits import CLAIM_CHARACTERS, GROUPS_CEILING, NAME_CHARACTERS, PUSH_WAY_CHARACTERS
from intercom.wire.frames import Register, is_blank, trim
from intercom.wire.mail import Hold
from intercom.wire.work import ExecutionSurface, WorkMode

Purpose = Literal["agent", "control"]
Push = Literal["now", "idle", "pull", "none"]
PUSHES: tuple[Push, ...] = ("now", "idle", "pull", "none")

TakesFlows = bool | Literal["todo"]
"""Whether a session takes steps of flows, perhaps with a to-do list of its own."""

DEFAULT_GROUP = "default"
DEFAULT_KIND = "custom"
"""What hosts a session unless the program says so."""
PERSON = "@me"
"""The address of the person, which is the broker's own and in no group."""
RESERVED_NAMES = frozenset({"all", "broker", "default", "me", "self", "system"})
RESERVED_GROUPS = frozenset({"auto", "true"})
_JOINERS = "\u200c\u200d"


class AddressWish(NamedTuple):
    """Name the address a session acts under; it belongs to the home group."""

    name: str
    hold: Hold
    group: str


class WorkWish(NamedTuple):
    """Say how a session takes work from the inbox, and whether it hands it out."""

    mode: WorkMode | None = None
    """``None`` for a session that takes none."""
    runtime_session_id: str | None = None
    surface: ExecutionSurface | None = None
    coordinates: bool = False


class Profile:
    """Hold what a session tells of itself; name, status, model and groups follow what the broker acknowledged."""

    def __init__(
        self,
        name: str | None = None,
        *,
        group: str | None = None,
        groups: Iterable[str] | None = None,
        model: str = "",
        status: str | None = None,
        purpose: Purpose = "agent",
        return_address: str | None = None,
        session_id: str | None = None,
        cwd: str | None = None,
        supervisor: str | None = None,
        owner_token: str | None = None,
        address: bool | str = False,
        hold: Hold = "take",
        keep_questions: bool = False,
        kind: str = DEFAULT_KIND,
        push: Push | None = None,
        push_way: str | None = None,
        work_mode: WorkMode | None = None,
        runtime_session_id: str | None = None,
        surface: ExecutionSurface | None = None,
        coordinator: bool = False,
        flows: TakesFlows = False,
        durable: bool = False,
    ) -> None:
        """Check everything that could never work; raise ``UsageError``.

        ``group`` is the home group, else the first of ``groups``; ``session_id`` is a wish for a former id, granted
        only with the return address it had; ``supervisor`` is the capability a supervisor made for this name;
        ``owner_token`` is the secret under which an earlier session made capabilities for its children.
        ``address`` is the name of the address to act under, ``True`` for the name of the session.
        """
        if purpose not in ("agent", "control"):
            raise UsageError(f"purpose must be 'agent' or 'control', not {purpose!r}")
        if return_address == "":
            raise UsageError("return_address is empty", hint="Leave it out to be a new session.")
        if isinstance(groups, str):
            raise UsageError("groups must be several strings; use group for one")
        self.name = None if name is None else checked_name(name)
        memberships = [checked_group(wanted) for wanted in groups or ()]
        if group is not None:
            self.home_group = checked_group(group)
        else:
            self.home_group = memberships[0] if memberships else DEFAULT_GROUP
        self.groups: tuple[str, ...] = tuple(dict.fromkeys([*memberships, self.home_group]))
        if len(self.groups) > GROUPS_CEILING:
            raise UsageError(f"{len(self.groups)} groups are too many: at most {GROUPS_CEILING} are allowed")
        self.group = self.home_group
        self.model = checked_claim(model, "model")
        self.status = None if status is None else checked_claim(status, "status")
        self.purpose = purpose
        self.keep_questions = keep_questions
        """The address goes on owing what this session was asked and has not answered when it leaves."""
        self.is_retaken = return_address is not None
        """Whether a later session may take this one's place by its return address, instead of the broker's token."""
        self.return_address = clean_text(return_address or str(uuid.uuid4()), "return_address")
        self.session_id = None if session_id is None else clean_text(session_id, "session_id")
        if supervisor is not None and self.name is None:
            raise UsageError("a session with a supervisor needs a name", hint="Use the one its supervisor authorised.")
        if supervisor == "":
            raise UsageError("supervisor is empty", hint="Leave it out to have none.")
        self.supervisor = None if supervisor is None else clean_text(supervisor, "supervisor")
        self.supervisor_id: str | None = None
        """Session id of the supervisor, while this session is registered as its child."""
        self.child_name = self.name
        """The name the capability is for; it stays when the session takes another one."""
        if owner_token == "":
            raise UsageError("owner_token is empty", hint="Leave it out to begin without children.")
        if owner_token is not None and purpose != "agent":
            raise UsageError("a control session has no children, so it needs no owner_token")
        self.owner_token = None
        """Secret under which the broker makes the capabilities of this session's children."""
        if purpose == "agent":
            self.owner_token = clean_text(owner_token or str(uuid.uuid4()), "owner_token")
        self.children: dict[str, str] = {}
        """Capabilities this session made, with the names of the children."""
        self.address = self._wish(address, hold)
        if flows not in (True, False, "todo"):
            raise UsageError(f"flows must be true, false or 'todo', not {flows!r}")
        if flows and purpose != "agent":
            raise UsageError("a control session takes no steps of flows")
        if durable and (self.address is None or self.address.hold == "none"):
            raise UsageError("a durable session receives for an address", hint="Add address=True, and give it a name.")
        self.durable = durable
        """It keeps a journal of what it reports and what it is told."""
        self.flows: TakesFlows = flows
        """Whether it takes steps of flows, and binds them to items of its to-do list."""
        if push not in (None, *PUSHES):
            raise UsageError(f"push must be one of {', '.join(PUSHES)}, not {push!r}")
        self.push = push
        """How what hosts the session shows it a message, as others are told."""
        self.push_way = None if push_way is None else checked_push_way(push_way)
        """By what it does that."""
        self.work = self._work_wish(work_mode, runtime_session_id, surface, coordinates=coordinator)
        self.kind = clean_text(kind, "kind")
        if is_blank(self.kind):
            raise UsageError("kind is empty", hint="Leave it out.")
        self.spawn_token: str | None = None
        """What shows that this is the session that somebody had started, until it was shown."""
        self.cwd = checked_claim(cwd, "cwd") if cwd is not None else clean_text(_working_directory(), "cwd")
        self.policy: dict[str, Any] | None = None
        """What this session lets through, as the broker acknowledged it."""
        self.pid = os.getpid()
        self.started_at = time.time_ns() // 1_000_000
        self.last_activity: int | None = None
        """When others last heard something new of this session, in epoch ms; registering again is nothing new."""
        self.announcements = 0
        """How often the status was announced without waiting for an answer."""

    def register(self, wall: int, *, claims: bool = True) -> Register:
        """Return the frame that enters the session table.

        ``wall`` is now in epoch milliseconds; ``claims`` tells whether a child claims its supervisor.
        """
        claims = claims and self.supervisor is not None
        if self.last_activity is None:
            self.last_activity = wall
        session: dict[str, Any] = {
            "cwd": self.cwd,
            "model": self.model,
            "pid": self.pid,
            "startedAt": self.started_at,
            "lastActivity": self.last_activity,
            "group": self.group,
            "groups": list(self.groups),
            "recipientPurpose": self.purpose,
        }
        name = self.child_name if claims else self.name
        if name is not None:
            session["name"] = name
        if self.status is not None:
            session["status"] = self.status
        if self.policy is not None:
            session["inboundPolicy"] = self.policy
        if self.push is not None:
            session["push"] = self.push
        if self.push_way is not None:
            session["pushWay"] = self.push_way
        return Register(
            session=session,
            registration_group=self.home_group,
            return_address=self.return_address,
            supervisor_owner_token=UNSET if self.owner_token is None else self.owner_token,
            preferred_session_id=UNSET if self.session_id is None else self.session_id,
            acknowledges_receipt=True,
            supervisor=self._claim() if claims else UNSET,
        )

    def _wish(self, address: bool | str, hold: Hold) -> AddressWish | None:
        if hold not in ("take", "free", "none"):
            raise UsageError(f"hold must be 'take', 'free' or 'none', not {hold!r}")
        if address is False:
            return None
        if self.purpose == "control":
            raise UsageError("a control session gets no messages, so it cannot act under an address")
        if address == PERSON:
            return AddressWish(PERSON, hold, "")
        if address is True and self.name is None:
            raise UsageError("an address needs a name", hint="Give the session a name, or name the address.")
        return AddressWish(self.name if address is True and self.name else checked_name(address), hold, self.home_group)

    def _work_wish(
        self,
        mode: WorkMode | None,
        runtime_session_id: str | None,
        surface: ExecutionSurface | None,
        *,
        coordinates: bool,
    ) -> WorkWish:
        if mode not in (None, *get_args(WorkMode)):
            raise UsageError(f"work_mode must be 'resident' or 'managed_turn', not {mode!r}")
        if surface not in (None, *get_args(ExecutionSurface)):
            raise UsageError(f"surface must be 'owner_attached' or 'headless', not {surface!r}")
        if (mode is not None or coordinates) and self.purpose == "control":
            raise UsageError("a control session takes no work, and hands it out without being a coordinator")
        if mode is not None and self.is_retaken and self.address is None:
            raise UsageError(
                "a session that is found again by its return_address takes no work", hint="Give it an address instead."
            )
        if mode == "managed_turn" and runtime_session_id is None:
            raise UsageError("work_mode 'managed_turn' needs a runtime_session_id", hint="It names the host's session.")
        if runtime_session_id is not None:
            runtime_session_id = clean_text(runtime_session_id, "runtime_session_id")
            if is_blank(runtime_session_id):
                raise UsageError("runtime_session_id is empty", hint="Leave it out.")
        if mode is not None and surface is None:
            surface = "headless"
        return WorkWish(mode, runtime_session_id, surface, coordinates)

    def _claim(self) -> dict[str, str | None]:
        """Return the claim of a child; the broker goes by the capability alone (protocol 4.1)."""
        return {"capability": self.supervisor, "supervisorSessionId": self.supervisor_id or ""}

    def announced(self, status: str, wall: int) -> None:
        """Take notice that others are told a status; what is acknowledged later was written before."""
        self.status = status
        self.last_activity = wall
        self.announcements += 1

    def regroup(self, groups: Iterable[str], wall: int) -> tuple[str, ...]:
        """Take over the memberships the broker acknowledged, and return them; ``wall`` is now in epoch ms."""
        self.last_activity = wall
        self.groups = tuple(groups)
        if self.group not in self.groups and self.groups:
            self.group = self.groups[0]
        return self.groups


def checked_name(name: Any) -> str:
    """Return a name this session may have; raise ``UsageError`` for one that would mean something else to others."""
    cleaned = trim(clean_text(name, "name"))
    plain = _plain(cleaned)
    if not plain:
        raise UsageError("the name is empty", hint="Leave it out to have none.")
    if len(cleaned) > NAME_CHARACTERS:
        raise UsageError(f"the name has {len(cleaned)} characters; at most {NAME_CHARACTERS} are allowed")
    if not cleaned.isprintable() and _has_hidden(cleaned):
        raise UsageError(f"the name {cleaned!a} has a character that cannot be seen", hint="Choose another name.")
    if plain in RESERVED_NAMES or plain.startswith(("@", "*", "/", "./", "../", "~/", "workflow:")):
        raise UsageError(f"the name {cleaned!a} is reserved", hint="Choose another name.")
    if _looks_like_id(plain):
        raise UsageError(f"the name {cleaned!a} looks like a session id", hint="Choose another name.")
    return cleaned


def checked_claim(text: Any, what: str) -> str:
    """Return what a session tells of itself; raise ``UsageError`` for what is too long to be told to everybody."""
    cleaned = clean_text(text, what)
    if len(cleaned) > CLAIM_CHARACTERS:
        raise UsageError(f"the {what} has {len(cleaned)} characters; at most {CLAIM_CHARACTERS} are allowed")
    return cleaned


def checked_push_way(way: Any) -> str:
    """Return the word for a way into a host; raise ``UsageError`` for an empty or a long one."""
    cleaned = clean_text(way, "push_way")
    if not 1 <= len(cleaned) <= PUSH_WAY_CHARACTERS:
        raise UsageError(f"push_way has {len(cleaned)} characters; 1 to {PUSH_WAY_CHARACTERS} are allowed")
    return cleaned


def checked_child(name: Any) -> str:
    """Return the name a supervisor authorises a child under, ``*`` for any; raise ``UsageError`` for a bad one."""
    return "*" if name == "*" else checked_name(name)


def checked_group(group: Any) -> str:
    """Return a group name, trimmed; raise ``UsageError`` for a blank or reserved one."""
    cleaned = clean_text(group, "group")
    if is_blank(cleaned):
        raise UsageError("a group name is empty", hint="Leave it out to be in the group default.")
    cleaned = checked_claim(trim(cleaned), "group")
    if cleaned.lower() in RESERVED_GROUPS:
        raise UsageError(f"the group name {cleaned!r} is reserved", hint="Choose another name.")
    return cleaned


def _plain(name: str) -> str:
    """Return what a person sees of a name: in lower case and without characters that take no room."""
    if name.isascii():
        return name.lower()
    from unicodedata import category, normalize  # names are nearly always ASCII

    return "".join(char for char in normalize("NFKC", name) if category(char) != "Cf").lower().strip()


def _has_hidden(name: str) -> bool:
    """Tell whether a name is more than one line, steers a terminal or hides something; emoji are joined unseen."""
    from unicodedata import category

    return any(category(char) in ("Cc", "Cf", "Zl", "Zp") and char not in _JOINERS for char in name)


def _looks_like_id(name: str) -> bool:
    digits = name.replace("-", "")
    return len(digits) in (8, 32) and len(name) in (8, 36) and not set(digits) - set("0123456789abcdef")


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"
