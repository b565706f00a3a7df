"""Hold one piece of work that a session was handed: what it is about, and how far it is known to be."""

from __future__ import annotations

from msgspec.structs import replace

from intercom.client.views import Attachment, IncomingMessage, SessionView
from intercom.client.workviews import AssignmentView, ProcessingState

ENDING = frozenset({"reply_emitted", "failed", "expired", "target_lost"})
"""States after which an assignment is over."""


class Assignment:
    """Hold an assignment.

    ``view`` is what the broker said of it when it was handed over, ``message`` what its sender wrote, ``state`` the
    last state this session knows of.
    """

    __slots__ = ("__weakref__", "accepted", "is_over", "message", "sequence", "state", "view")

    def __init__(self, view: AssignmentView, message: IncomingMessage) -> None:
        self.view = view
        self.message = message
        self.state: ProcessingState = view.state
        self.sequence = view.sequence
        """Number of that state, as far as this session knows it."""
        self.accepted = view.accepted
        """Whether this session has taken the responsibility."""
        self.is_over = False
        """Whether it was answered, failed, or given back."""

    @property
    def id(self) -> str:
        """Return its id; each handing over has its own."""
        return self.view.id

    @property
    def inbox_id(self) -> str:
        """Return the id of its message in the inbox."""
        return self.view.inbox_id

    @property
    def source_message_id(self) -> str:
        """Return the id under which its sender sent the message."""
        return self.view.source_message_id

    @property
    def text(self) -> str:
        """Return what is to be done."""
        return self.message.text

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Return what came with the text."""
        return self.message.attachments

    @property
    def sender(self) -> SessionView:
        """Return who wants it done."""
        return self.message.sender

    @property
    def accept_deadline(self) -> int | None:
        """Return when it goes back to the inbox unless it is accepted before, in epoch milliseconds."""
        return None if self.accepted else self.view.accept_deadline

    @property
    def present(self) -> AssignmentView:
        """Return ``view`` with what has changed since, as far as this session knows."""
        return replace(
            self.view,
            state=self.state,
            sequence=self.sequence,
            accepted=self.accepted,
            accept_deadline=self.accept_deadline,
        )

    def noted(self, state: ProcessingState, sequence: int = 0, *, gives_back: bool = False) -> None:
        """Take notice that the broker has recorded a state; ``gives_back`` when it may go to somebody else."""
        self.state = state
        self.sequence = max(self.sequence, sequence)
        if state == "accepted":
            self.accepted = True
        if state in ENDING or (gives_back and not self.accepted):
            self.is_over = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} {self.state} from {self.sender.name or self.sender.id!r}>"
