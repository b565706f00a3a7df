"""Define what the core asks the outside world to do.

Effects are data. They are performed in the order in which they were returned: an append before the frames that
rest on it. The core names connections by the number it was given at ``connection_opened``.

Nearly all effects are ``Append`` and ``Write``. Who performs them asks for ``type(effect)``: that one is not of a class
of msgspec takes ``isinstance`` much longer to find out than that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, final

from msgspec import Struct

from intercom.core.records import Change, PeerWork, ReadBodies, ReadHistory, ReadJournal, ReadOperations

if TYPE_CHECKING:
    from intercom.wire.unions import Answer


@final
class Append(Struct, frozen=True):
    """Commit these changes durably, all or none, under this ticket; tickets only grow."""

    ticket: int
    changes: tuple[Change, ...]


@final
class Write(Struct, frozen=True):
    """Write a frame to one connection, not before the append with ticket ``after`` is committed.

    Frames to one connection keep their order. When ``token`` is set the core must be told its fate exactly once:
    ``frames_taken`` when the kernel took the frame's last byte, ``frame_lost`` when that can no longer happen.
    A frame whose append failed is dropped without either.
    """

    to: int
    frame: Answer
    after: int = 0
    token: object | None = None


class Broadcast(Struct, frozen=True):
    """Write one frame to several connections; it is encoded once."""

    to: tuple[int, ...]
    frame: Answer


class Discard(Struct, frozen=True):
    """Drop what is queued for this connection and was not begun: it was written to a session that is none now."""

    to: int


class Finish(Struct, frozen=True):
    """Send what is queued for this connection, then FIN, then close; ignore everything it still sends."""

    to: int


class Destroy(Struct, frozen=True):
    """Close this connection at once and drop what is queued for it (protocol error)."""

    to: int
    reason: str
    """For the log: which rule was broken, in one sentence."""


class Stop(Struct, frozen=True):
    """Shut the broker down (protocol 3.8)."""

    reason: str


class Note(Struct, frozen=True):
    """Write one line to the log; never holds bodies, tokens or capabilities."""

    event: str
    fields: dict[str, Any]


class WatchProcess(Struct, frozen=True):
    """Find out whether this process lives; tell the core with ``process_judged``.

    It is judged once it has ended, or after ``PROCESS_EXIT_MS`` as alive; a later end is told as well, until
    ``ForgetProcess``.
    """

    ref: str
    pid: int
    started: int | None
    """The process has ended when another one that started at another time has its number."""


class ForgetProcess(Struct, frozen=True):
    """Stop watching."""

    ref: str


class Spawn(Struct, frozen=True):
    """Run the command of this kind, with the prompt as its input and the token in its environment.

    Tell the core with ``spawn_ended`` when it cannot be started, or ends with a failure.
    """

    ref: str
    kind: str
    prompt: str
    token: str


Effect: TypeAlias = (
    Append
    | Write
    | Broadcast
    | Discard
    | Finish
    | Destroy
    | Stop
    | Note
    | ReadBodies
    | ReadHistory
    | ReadOperations
    | ReadJournal
    | WatchProcess
    | ForgetProcess
    | Spawn
    | PeerWork
)
