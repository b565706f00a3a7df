"""Hold the bytes the kernel has not taken yet."""

from __future__ import annotations

import os
from collections import deque


class Unsent:
    """Write in order, as much as the kernel takes, without ever waiting or copying what is left."""

    __slots__ = ("_begun", "_chunks")

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._begun = 0
        """Bytes of the first chunk that the kernel has."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, data: bytes) -> None:
        """Put bytes behind the others."""
        if data:
            self._chunks.append(data)

    def clear(self) -> None:
        """Drop everything; the connection must not be written to any more."""
        self._chunks.clear()
        self._begun = 0

    def write_to(self, descriptor: int) -> bool:
        """Write to a non-blocking descriptor and tell whether nothing is left; raises ``OSError``."""
        try:
            while self._chunks:
                chunk = self._chunks[0]
                self._begun += os.write(descriptor, memoryview(chunk)[self._begun :] if self._begun else chunk)
                if self._begun == len(chunk):
                    self._chunks.popleft()
                    self._begun = 0
        except BlockingIOError:
            return False
        return True
