"""Read what a host says, line by line, so that no line is lost on the parser of the SDK.

Half of a surrogate pair, escaped as JSON allows, makes that parser refuse the whole line, and its sender would wait for
an answer for ever. Here as on the wire such a half becomes U+FFFD.
"""

from __future__ import annotations

import io
import json
import re
from typing import BinaryIO

import mcp_types
from pydantic import ValidationError

from intercom.client.composing import clean_text

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Lines(io.TextIOWrapper):
    """Be the standard input of a server."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read UTF-8; what is none becomes U+FFFD."""
        super().__init__(stream, encoding="utf-8", errors="replace")

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # it is never closed or detached
        """Return the next line, or an empty text at the end."""
        return mended(super().readline(size))


def mended(line: str) -> str:
    """Return a line of JSON without halves of surrogate pairs; what is no JSON stays as it is."""
    if _SURROGATE.search(line) is None:
        return line
    try:
        return clean_text(json.dumps(json.loads(line), ensure_ascii=False)) + "\n"
    except (ValueError, RecursionError):
        return line


def refusal(error: Exception) -> mcp_types.JSONRPCError | None:
    """Return the answer to a line that could not be read, as JSON-RPC wants it; a blank line needs none."""
    if not isinstance(error, ValidationError):
        return None
    [first, *_] = error.errors(include_url=False)
    if first["type"] != "json_invalid":
        code, reason = mcp_types.INVALID_REQUEST, "Not a message of JSON-RPC 2.0"
    elif str(first["input"]).strip():
        code, reason = mcp_types.PARSE_ERROR, "Not JSON"
    else:
        return None
    return mcp_types.JSONRPCError(jsonrpc="2.0", id=None, error=mcp_types.ErrorData(code=code, message=reason))
