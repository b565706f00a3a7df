"""Stay the same session over many connections: features, reattach, addresses, and the ids it had.

The first frame of a connection is ``session_reattach`` when the broker gave this session an owner token, else, or when
that was refused for good, ``register``. A broker that grants nothing is an older one: then nothing of this is used.
An address is taken at the first registration only. Whoever returns later asks for it in so far as nobody else holds it,
because the newest holder is the rightful one and an older one must not come back by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import UNSET

from intercom.client.profile import Profile
from intercom.errors import AddressHeld, AddressTaken, IntercomError, SessionClosed, SessionReplaced
from intercom.limits import FORMER_IDS, REATTACH_ATTEMPTS
from intercom.wire.frames import Register, Registered
from intercom.wire.mail import AddressClaim, Hold, Replaced, SessionReattach, SessionReattached

LIFECYCLE = "session.lifecycle"
RECEIPTS = "push.receipts"
QUEUE = "queue"
ADDRESS = "address"
OPERATOR = "operator"
WAITS = "waits"
POLICY = "policy"
INBOX = "inbox"
WORK = "work.assignments"
COORDINATOR = "flow.control"
FLOW_REPORT = "flow.report"
TODO = ("flow.todo_projection", "flow.todo_mutation")
WATCH = "watch"
LINK = "link.durable"
INVOKE = "invoke"

AGENT_FEATURES = (LIFECYCLE, RECEIPTS, QUEUE, ADDRESS, WATCH, WAITS, POLICY, INVOKE)
RETAKEN_FEATURES = (RECEIPTS, QUEUE, ADDRESS, WATCH, WAITS, POLICY, INVOKE)
"""Of an agent that returns by its return address, as older clients do: what is unconfirmed comes again to whoever shows
it, which a session with a lifecycle rules out."""
CONTROL_FEATURES = (OPERATOR, WATCH, WAITS, POLICY, INVOKE)
PROTOCOL_VERSION = "1.0"
"""What this client says it speaks beyond the base protocol."""


class Keeper(Protocol):
    """Keep what must outlive the process: the token of an address, and the ids of messages it is done with."""

    def prepare(self) -> None:
        """Make the token if there is none, before connecting; raise ``HomeError`` or ``AccessDenied``."""

    def token(self) -> str | None:
        """Return the token of the address, reading it anew; ``None`` without an address."""

    def keep_token(self, token: str) -> None:
        """Keep the token the broker gave to the creator of the address."""

    def knows(self, message_id: str) -> bool:
        """Tell whether an earlier session of the address was done with this message."""

    def note(self, message_ids: Iterable[str]) -> None:
        """Take notice of messages that are done with; they are about to be confirmed."""

    def refresh(self) -> None:
        """Look again at what other processes noted."""


class Nothing:
    """Keep nothing: the session has no address."""

    def prepare(self) -> None:
        """Do nothing."""

    def token(self) -> str | None:
        """Return ``None``."""
        return None

    def keep_token(self, token: str) -> None:
        """Drop a token nobody asked for."""

    def knows(self, message_id: str) -> bool:
        """Return ``False``."""
        return False

    def note(self, message_ids: Iterable[str]) -> None:
        """Forget them."""

    def refresh(self) -> None:
        """Do nothing."""


class Lifecycle:
    """Hold what of a session lasts; times are monotonic milliseconds."""

    def __init__(self, profile: Profile, keeper: Keeper) -> None:
        self.features: frozenset[str] = frozenset()
        """What the present broker granted."""
        self.former_ids: tuple[str, ...] = ()
        """The ids this session had before, oldest first."""
        self.keeper = keeper
        self.generation = 0
        self.mailbox_count = 0
        """How many messages waited when the present connection was made."""
        self._profile = profile
        self._owner_token: str | None = None
        self._is_reattaching = False
        self._unanswered = 0
        self._shown: str | None = None
        """The address token that the last ``register`` showed."""
        self._was_registered = False
        self._is_anew = False

    @property
    def is_reattaching(self) -> bool:
        """Tell whether ``session_reattach`` was written and not answered."""
        return self._is_reattaching

    def begin_anew(self) -> None:
        """Let the next connection begin with a registration, whatever there was before."""
        self._is_anew = True

    def first_frame(self, wall: int, ids: Callable[[], str], *, claims: bool) -> Register | SessionReattach:
        """Return what begins a connection; ``claims`` as for ``Profile.register``."""
        session_id = self._profile.session_id
        is_anew, self._is_anew = self._is_anew, False
        if self._owner_token is None or session_id is None or is_anew:
            return self.register(wall, claims=claims)
        self._is_reattaching = True
        return SessionReattach(ids(), session_id, self._owner_token)

    def register(self, wall: int, *, claims: bool) -> Register:
        """Return the registration; a token of this session's owner is shown with it."""
        self._is_reattaching = False
        frame = self._profile.register(wall, claims=claims)
        frame.features = list(self._wished())
        frame.client_protocol_version = PROTOCOL_VERSION
        frame.kind = self._profile.kind
        if self._profile.spawn_token is not None:
            frame.spawn_token = self._profile.spawn_token
        work = self._profile.work
        if work.mode is not None:
            frame.work_mode = work.mode
        if work.runtime_session_id is not None:
            frame.runtime_session_id = work.runtime_session_id
        if work.surface is not None:
            frame.execution_surface = work.surface
        if self._owner_token is not None:
            frame.owner_token = self._owner_token
        wish = self._profile.address
        if wish is not None:
            self._shown = self._token()
            hold: Hold = "free" if wish.hold == "take" and self._was_registered else wish.hold
            frame.address = AddressClaim(wish.name, UNSET if self._shown is None else self._shown, hold)
        return frame

    def registered(self, answer: Registered) -> None:
        """Take what the broker granted; raise ``HomeError`` or ``AccessDenied`` when a new token cannot be kept."""
        self._profile.spawn_token = None  # it is good for one registration, and that was it
        self._begin(answer.session_id, [] if answer.features is UNSET else answer.features)
        self._owner_token = None if answer.owner_token is UNSET else answer.owner_token
        self.generation = 0 if answer.generation is UNSET else answer.generation
        self.mailbox_count = 0 if answer.mailbox_count is UNSET else answer.mailbox_count
        if answer.address_token is not UNSET:
            self.keeper.keep_token(answer.address_token)
        self.keeper.refresh()

    def reattached(self, answer: SessionReattached) -> None:
        """Take notice that the session goes on."""
        self._begin(answer.session_id, answer.features)
        self.generation = answer.generation
        self.mailbox_count = answer.mailbox_count
        self.keeper.refresh()

    def unanswered(self) -> None:
        """Take notice that the broker ended the connection instead of answering.

        One that was replaced by an older version does so every time; then the session registers. It shows its token
        with that, because the broker may as well have died each time, and the next one knows the session.
        """
        if self._is_reattaching:
            self._is_reattaching = False
            self._unanswered += 1
            if self._unanswered >= REATTACH_ATTEMPTS:
                self._is_anew = True

    def refused(self, error: IntercomError) -> int | None:
        """Return the pause after which a refused registration is to be tried again, ``None`` for not.

        Another process may have been told a token since this one looked.
        """
        is_taken = isinstance(error, AddressTaken) and self._profile.address is not None
        return 0 if is_taken and self._token() != self._shown else None

    def lost_place(self, error: IntercomError) -> IntercomError | None:
        """Return why the session is over that was refused when it came back; ``None`` when it may try again."""
        end = end_of(error.code, error.reason)
        if end is not None:
            return end
        wish = self._profile.address
        if isinstance(error, AddressHeld) and self._was_registered and wish is not None and wish.hold == "take":
            return SessionReplaced(f"Another session took the address {wish.name} while this one was away")
        return None

    def present(self, session_id: str) -> str:
        """Return the id that counts now for one this session may have had before."""
        return (self._profile.session_id or session_id) if session_id in self.former_ids else session_id

    def _wished(self) -> tuple[str, ...]:
        if self._profile.purpose == "control":
            return CONTROL_FEATURES
        is_retaken = self._profile.is_retaken and self._profile.address is None
        features: tuple[str, ...] = RETAKEN_FEATURES if is_retaken else AGENT_FEATURES
        work = self._profile.work
        if work.mode is not None or work.coordinates:
            features += (INBOX,)
        if work.mode is not None:
            features += (WORK,)
        if self._profile.durable:
            features += (LINK,)
        if self._profile.flows:
            features += (FLOW_REPORT,)
        if self._profile.flows == "todo":
            features += TODO
        return (*features, COORDINATOR) if work.coordinates else features

    def _token(self) -> str | None:
        """Return the token there is now; one that cannot be read is none, and the broker says what that means."""
        try:
            return self.keeper.token()
        except IntercomError:
            return None

    def _begin(self, session_id: str, features: Iterable[str]) -> None:
        self._is_reattaching = False
        self._was_registered = True
        self._unanswered = 0
        self.features = frozenset(features)
        before = self._profile.session_id
        if before is not None and before != session_id:
            kept = [former for former in self.former_ids if former not in (before, session_id)]
            self.former_ids = (*kept, before)[-FORMER_IDS:]
        self._profile.session_id = session_id


def end_of(code: str, reason: str) -> IntercomError | None:
    """Return why a session is over for good that the broker refused for this reason; ``None`` when it is not."""
    kind = _ENDS.get(code)
    return None if kind is None else kind(reason)


def told_of_replacement(answer: Replaced, address: str | None) -> SessionReplaced:
    """Return the error for ``replaced``."""
    if answer.by == "address":
        taker = f"Session {answer.session_id}" if answer.session_id else "A session on another machine"
        return SessionReplaced(f"{taker} took the address {address or 'of this one'}")
    return SessionReplaced(f"Another connection of this process is session {answer.session_id} now")


_ENDS: dict[str, type[IntercomError]] = {"replaced": SessionReplaced, "force_closed": SessionClosed}
"""Refusals after which a session must not come back by itself."""
