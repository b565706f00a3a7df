"""Hold the reasons the broker gives when mail was not delivered; each completes a sentence."""

from __future__ import annotations

BODY_LOST = "its text cannot be read from the store any more"
NEVER_FETCHED = "nobody fetched it in time"
NO_LONGER_VALID = "it was valid for a limited time, and that is over"
SHOWN_LATE = "its reader was shown it after the time it was valid for, and told so"
NEVER_CONFIRMED = "it was written to its recipient, which never confirmed it, and its time is over"
NOT_LET_THROUGH = "its recipient, or the person, does not let messages of its sender through"
NEVER_LET_THROUGH = "the person did not let it through in time"
NEVER_TAKEN = "nobody took it out of the inbox in time"
PURGED = "the mailbox was emptied by its owner"


def session_closed(reason: str) -> str:
    """Say why mail of a session that will not come back was given up."""
    return f"the session it was for has ended ({reason})"
