"""Give ids that nobody else has and nobody can guess (RFC 9562, version 4)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from intercom.limits import RANDOM_IDS

_BYTES = 16
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""What the digit that tells the variant becomes, by the random one in its place."""


def random_ids() -> Iterator[str]:
    """Give version 4 UUIDs for ever.

    Random bits are fetched for many at once: the kernel is asked without the interpreter's lock, and to have that back
    takes longer than all the rest while another thread writes to the disk.
    """
    while True:
        digits = os.urandom(_BYTES * RANDOM_IDS).hex()
        for start in range(0, len(digits), 2 * _BYTES):
            one = digits[start : start + 2 * _BYTES]
            yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANTS[one[16]]}{one[17:20]}-{one[20:]}"
