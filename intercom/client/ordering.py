"""Have sessions started: one order, however often it has to be sent."""

from __future__ import annotations

from typing import Any

from intercom.client.composing import clean_text, milliseconds
from intercom.client.patience import PatientRequest
from intercom.errors import IntercomError, RequestRefused, RequestTimeout, UsageError
from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, SPAWN_PROMPT_CHARACTERS
from intercom.wire.watching import SpawnSession, SpawnStatus


class SpawnOperation(PatientRequest[str]):
    """Wait for the session that was ordered; the result is its id."""

    key = ""
    """Names the order."""
    _is_recorded = False

    def received(self) -> None:
        """Note that the order is recorded; what becomes of it follows."""
        self._is_recorded = True

    def answered(self, answer: Any) -> None:
        """Settle with what became of the order."""
        if answer.status == "applied":
            self.succeed(answer.session_id)
        else:
            self.fail(RequestRefused(answer.reason or "No session came", code=answer.code or "spawn_failed"))

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        error = super()._at_deadline(trouble)
        if isinstance(error, RequestTimeout):
            if self._is_recorded:
                error = RequestTimeout("The command was started, and no session has come yet", retry="same_id")
            error.key = self.key
            error.hint = f"Repeat it with the key {self.key}: nothing is started twice."
        return error


def spawn(kind: str, prompt: str, *, key: str, timeout: float, now: int) -> SpawnOperation:
    """Order a session; ``timeout`` in seconds bounds the wait for it, ``now`` is monotonic milliseconds."""
    wanted, text = clean_text(kind, "kind"), clean_text(prompt, "prompt")
    if not wanted.strip():
        raise UsageError("kind is empty", hint="Name one that intercom.toml has.")
    if len(text) > SPAWN_PROMPT_CHARACTERS:
        raise UsageError(f"the prompt has {len(text)} characters; at most {SPAWN_PROMPT_CHARACTERS} are allowed")
    named = clean_text(key, "key")
    if not 0 < len(named) <= IDEMPOTENCY_KEY_CHARACTERS:
        raise UsageError(f"key must have 1 to {IDEMPOTENCY_KEY_CHARACTERS} characters")
    operation = SpawnOperation(
        lambda request_id: SpawnSession(request_id, named, wanted, text),
        SpawnStatus,
        lambda answer: str(answer.session_id),
        now + milliseconds(timeout, "timeout"),
    )
    operation.key = named
    return operation
