"""Cut a byte stream into frames: a 32-bit big-endian length, then that many bytes of payload (protocol 1.2).

``FrameReader`` takes bytes as they come and hands frames out one at a time, so that a caller may stop between two
of them; nothing is cut before it is asked for.
"""

from __future__ import annotations

from struct import Struct

from intercom.limits import HEADER_BYTES

_HEADER = Struct(">I")
header = _HEADER.pack
"""Return the length prefix of a payload of so many bytes."""
_unpack_from = _HEADER.unpack_from


class ProtocolError(Exception):
    """Say in one sentence which rule of the wire the other side broke; its connection cannot go on."""


class FramingError(ProtocolError):
    """Say that a length prefix announces more than is allowed, or is no length at all."""


def frame(payload: bytes) -> bytes:
    """Put the length prefix before ``payload``."""
    return header(len(payload)) + payload


class FrameReader:
    """Collect bytes and cut frames from them, strictly in order.

    A frame lies in ``_chunk``, the bytes of one ``feed`` kept as they came, or it begins there and ends in ``_tail``,
    where everything is appended that came while ``_chunk`` was not used up. So the usual read is copied once, into
    its frames, and no byte more than four times however the stream is split.
    """

    __slots__ = ("_at", "_chunk", "_error", "_tail", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """Accept payloads of up to ``limit_bytes``; the attribute may be changed between two frames."""
        self.limit_bytes = limit_bytes
        self._chunk = b""
        self._at = 0
        self._tail = bytearray()
        self._error: FramingError | None = None

    @property
    def buffered(self) -> int:
        """Count the bytes that were fed and not yet handed out."""
        return len(self._chunk) - self._at + len(self._tail)

    @property
    def rest(self) -> bytes:
        """Return a copy of the bytes that were fed and not yet handed out."""
        return self._chunk[self._at :] + self._tail

    @property
    def mid_frame(self) -> bool:
        """Tell whether the last bytes fed leave a frame unfinished: an end of the stream now cuts it off."""
        rest = self.rest
        at = 0
        while len(rest) - at >= HEADER_BYTES:
            at += HEADER_BYTES + _unpack_from(rest, at)[0]
        return at != len(rest)

    def feed(self, data: bytes) -> None:
        """Take bytes from the stream, in any portions; after a ``FramingError`` they are thrown away."""
        if self._error is not None:
            return
        if self._at == len(self._chunk) and not self._tail:
            self._chunk = data
            self._at = 0
        else:
            self._tail += data

    def put_back(self, payload: bytes) -> None:
        """Hand this payload out again as the next one: it cannot be handled yet."""
        self._chunk = frame(payload) + self.rest
        self._at = 0
        self._tail = bytearray()

    def next_frame(self) -> bytes | None:
        """Hand out the payload of the next frame, or ``None`` while it is not complete.

        Raises:
            FramingError: the announced length is above ``limit_bytes``, known from the four bytes of the prefix
                alone. There is no way to find the next frame: every later call raises the same.
        """
        chunk = self._chunk
        start = self._at + HEADER_BYTES
        if start <= len(chunk):
            length: int = _unpack_from(chunk, self._at)[0]
            end = start + length
            if end <= len(chunk) and length <= self.limit_bytes:
                self._at = end
                return chunk[start:end]
        elif self._at == len(chunk) and not self._tail and self._error is None:
            return None
        return self._across(len(chunk) - self._at)

    def _across(self, here: int) -> bytes | None:
        """Cut a frame that begins in the last ``here`` bytes of the chunk and ends in the tail, or refuse it."""
        if self._error is not None:
            raise self._error
        if self._at:
            # A chunk is as large as a read; what is left of it is at most one unfinished frame.
            self._chunk = self._chunk[self._at :]
            self._at = 0
        if here + len(self._tail) < HEADER_BYTES:
            return None
        split = max(0, HEADER_BYTES - here)
        prefix = self._chunk[:HEADER_BYTES] + self._tail[:split]
        length: int = _unpack_from(prefix)[0]
        if length > self.limit_bytes:
            raise self._refuse(prefix)
        from_tail = HEADER_BYTES + length - here
        if from_tail > len(self._tail):
            return None
        with memoryview(self._tail) as tail:
            payload = b"".join((self._chunk[HEADER_BYTES:], tail[split:from_tail]))
            self._chunk = bytes(tail[from_tail:])
        self._tail = bytearray()
        return payload

    def _refuse(self, prefix: bytes) -> FramingError:
        length: int = _unpack_from(prefix)[0]
        self._error = FramingError(
            f"A frame of {length} bytes is announced and at most {self.limit_bytes} are allowed here; "
            f"the length prefix is {prefix.hex(' ')}, as text {prefix.decode('latin-1')!a}"
        )
        self._chunk = b""
        self._at = 0
        self._tail = bytearray()
        return self._error
