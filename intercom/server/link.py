"""Move the bytes of one connection: one non-blocking socket, registered with the loop for readiness.

A link is deliberately not an ``asyncio.Protocol``. A transport buffers what it is given and, when the connection
dies, drops it without a word; only the holder of the socket knows at that moment which frames the kernel had taken
to their last byte, and this decides between "may have arrived" and "was never sent". A frame taken in part was not
written: its receiver can never complete it.

Frames leave in the order in which they were put. One that waits for a commit holds back what is behind it on this
link and nothing elsewhere. What a link cannot decide it tells its owner; it knows neither frames nor rules.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from intercom.limits import FINISH_MS, READ_BYTES, SEND_BYTES, UNREGISTERED_FRAME_BYTES
from intercom.wire.framing import FrameReader

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

_input = bytearray(READ_BYTES)
# Every read goes through one buffer: allocating READ_BYTES anew costs more than the system call itself.
_input_view = memoryview(_input)

_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
# The process may belong to a program that does not ignore SIGPIPE.


class Stepped(NamedTuple):
    """Hold a large payload, and what decodes it step by step."""

    payload: bytes
    steps: Iterator[Any]


class InputOwner(Protocol):
    """Decide what input means."""

    def arrived(self, link: Link) -> None:
        """Handle the frames in ``link.reader``; ``link.eof`` tells whether more can come."""


class OutputOwner(Protocol):
    """Flush links and end them. ``released`` may be called from inside ``flush``."""

    def broke(self, link: Link) -> None:
        """End this link: its socket failed, ``link.broken`` says how."""

    def writable(self, link: Link) -> None:
        """Flush this link soon: the kernel has room again."""

    def released(self, link: Link, lost: Sequence[object]) -> None:
        """Forget this link, which was finished and is closed now; frames with these tokens did not leave."""


class Link:
    """Hold one connection; ``reader`` cuts its input, ``put`` and ``flush`` are its output.

    Args:
        number: what the core knows this connection by.
        sock: the connected socket; the link makes it non-blocking and closes it.
        loop: the event loop.
        intake: told of input.
        performer: told of room for output and of the end.
        peer_pid: process at the other end, for the log.
    """

    __slots__ = (
        "_bound",
        "_head_taken",
        "_intake",
        "_loop",
        "_newest",
        "_performer",
        "_progress",
        "_queue",
        "_reading",
        "_sock",
        "_writing",
        "accepting",
        "blocked",
        "broken",
        "classified",
        "closed",
        "counted_input",
        "dirty",
        "eof",
        "finishing",
        "gated",
        "number",
        "paused",
        "peer_pid",
        "reader",
        "registered",
        "stepped",
        "uncommitted_bytes",
        "uncommitted_frames",
        "unsent",
    )

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        loop: AbstractEventLoop,
        intake: InputOwner,
        performer: OutputOwner,
        peer_pid: int | None = None,
    ) -> None:
        sock.setblocking(False)
        self.number = number
        self.peer_pid = peer_pid
        self._sock = sock
        self._loop = loop
        self._intake = intake
        self._performer = performer
        self.reader = FrameReader(UNREGISTERED_FRAME_BYTES)
        self._queue: deque[tuple[bytes, int, object | None]] = deque()
        self._head_taken = 0
        self._newest = 0
        """The newest ticket that any frame ever waited for: when it is committed, every frame is free to go."""
        self._bound: TimerHandle | None = None
        self._progress = False
        self._reading = False
        self._writing = False
        self.accepting = True
        """Frames of the peer are still looked at (protocol 1.3.2)."""
        self.registered = False
        self.classified = False
        """The first frame came (protocol 3.5)."""
        self.paused = False
        """Its frames wait for our own commit; nothing more is read meanwhile."""
        self.stepped: Stepped | None = None
        """The large frame that is being decoded; nothing behind it is looked at meanwhile."""
        self.uncommitted_frames = 0
        self.uncommitted_bytes = 0
        self.counted_input = 0
        """Its share in the input buffered for all unregistered connections."""
        self.eof = False
        self.broken: OSError | None = None
        self.closed = False
        self.finishing = False
        self.unsent = 0
        """Bytes put and not taken by the kernel yet, frames that wait for a commit included."""
        self.dirty = False
        """Its owner has it on the list of links to flush."""
        self.gated = False
        """The first frame in the queue waits for a commit."""
        self.blocked = False
        """The kernel took less than it was offered; ``writable`` follows."""
        self.resume_reading()

    @property
    def has_output(self) -> bool:
        """Tell whether frames are queued."""
        return bool(self._queue)

    # --- input

    def resume_reading(self) -> None:
        """Read when something is there; fine when it is reading already."""
        if not self._reading and not self.eof and not self.closed:
            self._loop.add_reader(self._sock, self._on_readable)
            self._reading = True

    def stop_reading(self) -> None:
        """Leave what the peer sends in the kernel."""
        if self._reading:
            self._loop.remove_reader(self._sock)
            self._reading = False

    def _on_readable(self) -> None:
        if self.paused and not self.finishing:
            # Only now is it worth a system call: most pauses end before anything more arrives.
            self.stop_reading()
            return
        try:
            count = self._sock.recv_into(_input)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        if count == 0:
            self.stop_reading()
            self.eof = True
        if self.finishing:
            # What a finished peer still says is read, so that it gets our FIN and not a reset, and dropped.
            if self.eof and not self._queue:
                self._release()
            return
        if count:
            self.reader.feed(bytes(_input_view[:count]))
        self._intake.arrived(self)

    def is_abandoned(self) -> bool:
        """Tell whether the peer has closed both ways and all it wrote was read: no answer reaches anybody."""
        watch = select.poll()
        watch.register(self._sock, 0)
        if not any(happened & (select.POLLHUP | select.POLLERR) for _, happened in watch.poll(0)):
            return False
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    # --- output

    def put(self, data: bytes, after: int, token: object | None) -> None:
        """Queue one frame, to leave when the ticket ``after`` is committed; nothing is sent before ``flush``."""
        self._queue.append((data, after, token))
        self.unsent += len(data)
        if after > self._newest:
            self._newest = after

    def flush(self, committed: int) -> Sequence[object]:
        """Offer the kernel every frame whose ticket is at most ``committed``.

        Returns the tokens of the frames it took to the last byte, in order. Afterwards ``gated``, ``blocked`` and
        ``broken`` say why frames are left, if any are; a finishing link without frames has sent its FIN.
        """
        queue = self._queue
        taken: list[object] = []
        self.gated = False
        while queue and not self.blocked and self.broken is None:
            if self._newest <= committed and self.unsent <= SEND_BYTES and not self._head_taken:
                offered: bytes | memoryview = b"".join([data for data, _, _ in queue])
            elif queue[0][1] <= committed:
                offered = self._first_part(committed)
            else:
                self.gated = True
                break
            count = self._send(offered)
            self.blocked = count < len(offered) and self.broken is None
            self.unsent -= count
            if self.unsent:
                self._take(count, taken)
            else:
                taken += [token for _, _, token in queue if token is not None]
                queue.clear()
                self._head_taken = 0
        if self.blocked is not self._writing:
            self._watch_writable()
        if self.finishing and self.broken is None:
            self._finish_when_empty()
        return taken

    def drop_from(self, ticket: int) -> None:
        """Drop every queued frame that waits for ``ticket`` or a later one: it will never be committed."""
        kept = deque(entry for entry in self._queue if entry[1] < ticket)
        if len(kept) != len(self._queue):
            self._queue = kept
            self.unsent = sum(len(data) for data, _, _ in kept) - self._head_taken

    def discard(self) -> Sequence[object]:
        """Drop every queued frame of which nothing was sent; return the tokens of those, in order."""
        begun = [self._queue.popleft()] if self._head_taken else []
        lost = [token for _, _, token in self._queue if token is not None]
        self._queue = deque(begun)
        self.unsent = sum(len(data) for data, _, _ in begun) - self._head_taken
        return lost

    def _first_part(self, committed: int) -> bytes | memoryview:
        """Return what one write takes of the frames that are free to go."""
        first: bytes | memoryview = self._queue[0][0]
        if self._head_taken:
            first = memoryview(first)[self._head_taken :]
        parts = [first]
        size = len(first)
        for data, after, _ in islice(self._queue, 1, None):
            size += len(data)
            if after > committed or size > SEND_BYTES:
                break
            parts.append(data)
        return first if len(parts) == 1 else b"".join(parts)

    def _take(self, count: int, taken: list[object]) -> None:
        """Take the frames out of the queue that ``count`` more bytes complete."""
        count += self._head_taken
        while count >= len(self._queue[0][0]):
            head, _, token = self._queue.popleft()
            count -= len(head)
            if token is not None:
                taken.append(token)
        self._head_taken = count

    def _send(self, data: bytes | memoryview) -> int:
        try:
            count = self._sock.send(data, _NO_SIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._break(error)
            return 0
        self._progress = True
        return count

    def _break(self, error: OSError) -> None:
        """Remember why the link failed, without the frames it failed in, which hold the link for ever."""
        self.broken = error.with_traceback(None)

    def _watch_writable(self) -> None:
        if self.blocked:
            if not self._writing:
                self._loop.add_writer(self._sock, self._on_writable)
                self._writing = True
        elif self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False

    def _on_writable(self) -> None:
        self.blocked = False
        self._performer.writable(self)

    # --- the end

    def finish(self) -> None:
        """Accept nothing more; send what is queued, then FIN, then close when the peer closed too.

        The caller flushes the link next. A peer that neither takes anything nor closes for FINISH_MS is cut off.
        """
        self.accepting = False
        self.finishing = True
        self.resume_reading()

    def close(self) -> Sequence[object]:
        """Close at once; return the tokens of the frames that did not leave, in order."""
        self.accepting = False
        self.closed = True
        if self._bound is not None:
            self._bound.cancel()
            self._bound = None
        self.stop_reading()
        if self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        self._sock.close()
        return self._drop_queue()

    def abandon(self) -> Sequence[object]:
        """Send and accept nothing more; return the tokens of the frames that did not leave, in order."""
        self.accepting = False
        self.stop_reading()
        self.blocked = self.gated = False
        self._watch_writable()
        return self._drop_queue()

    def shut_down(self) -> None:
        """Send FIN."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def _finish_when_empty(self) -> None:
        if not self._queue:
            self.shut_down()
            if self.eof:
                self._release()
                return
        if self._bound is None:
            self._progress = False
            self._bound = self._loop.call_later(FINISH_MS / 1000, self._check_progress)

    def _check_progress(self) -> None:
        self._bound = None
        if self._progress or self.gated:
            self._progress = False
            self._bound = self._loop.call_later(FINISH_MS / 1000, self._check_progress)
        else:
            self._release()

    def _release(self) -> None:
        self._performer.released(self, self.close())

    def _drop_queue(self) -> Sequence[object]:
        lost = [token for _, _, token in self._queue if token is not None]
        self._queue.clear()
        self._head_taken = 0
        self.unsent = 0
        return lost

    def _fail(self, error: OSError) -> None:
        self.stop_reading()
        self._break(error)
        self._performer.broke(self)
