"""Run the command of ``listen --answer`` for one question, without ever waiting for it.

The question goes to its standard input and ids and names into its environment: nothing a peer wrote reaches a command
line. What it prints is the answer. Input and output are files in memory, so a command that reads nothing, or leaves
something running behind it, cannot hold the listener up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from intercom.cli.who import ASKED_VARIABLES
from intercom.limits import (
    ANSWER_COMMAND_MS,
    ANSWER_VARIABLE_CHARACTERS,
    ATTACHMENTS_BYTES,
    FLOW_SUMMARY_BYTES,
    LOG_TAIL_BYTES,
    RUN_TEXT_CHARACTERS,
)

if TYPE_CHECKING:
    from intercom.client.views import IncomingMessage

SHELL = "/bin/sh"


class Answer(NamedTuple):
    """Hold what a command had to say: the text, and whether it says that there is no answer."""

    text: str
    failed: bool


class RunningAnswer:
    """Be the command at work on one question.

    ``now`` is in monotonic milliseconds. Raises ``OSError`` when the shell cannot be started.
    """

    def __init__(self, command: str, message: IncomingMessage, environ: Mapping[str, str], now: int) -> None:
        self.message = message
        is_work = message.flow is not None or message.invoked is not None
        self._due = None if is_work else now + ANSWER_COMMAND_MS
        """When it has to be over: nobody waits longer for an answer; steps and tasks have no time of their own."""
        self._printed = _file()
        self._complaints = _file()
        try:
            with _file() as question:
                question.write(message.text.encode("utf-8", "replace"))
                question.seek(0)
                self._process = subprocess.Popen(
                    [SHELL, "-c", command],
                    stdin=question,
                    stdout=self._printed,
                    stderr=self._complaints,
                    env=variables(message, environ),
                    start_new_session=True,
                )
        except BaseException:
            self._printed.close()
            self._complaints.close()
            raise

    def poll(self, now: int) -> Answer | None:
        """Return the answer once there is one; ``None`` while the command is still at work."""
        status = self._process.poll()
        if status is None and self._due is not None and now >= self._due:
            return self._ended(Answer(f"the command did not end within {ANSWER_COMMAND_MS // 1000} s", failed=True))
        size = os.fstat(self._printed.fileno()).st_size
        if size > ATTACHMENTS_BYTES:
            return self._ended(Answer(f"the command printed more than {ATTACHMENTS_BYTES} bytes", failed=True))
        if status is None:
            return None
        return self._ended(self._outcome(status))

    def stop(self) -> None:
        """End the command and everything in its process group."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._printed.close()
        self._complaints.close()

    def _ended(self, answer: Answer) -> Answer:
        self.stop()
        return answer

    def _outcome(self, status: int) -> Answer:
        if status == 0:
            self._printed.seek(0)
            return Answer(_text(self._printed.read()), failed=False)
        ending = f"status {status}" if status > 0 else f"signal {-status}"
        size = os.fstat(self._complaints.fileno()).st_size
        self._complaints.seek(max(0, size - LOG_TAIL_BYTES))
        complaint = _text(self._complaints.read()).strip()
        return Answer(f"the command ended with {ending}" + (f": {complaint}" if complaint else ""), failed=True)


def variables(message: IncomingMessage, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: what it is asked, and by whom.

    ``INTERCOM_NAME`` is left out: a command that speaks while its listener does must not look like the listener.
    """
    told = {
        **dict(zip(ASKED_VARIABLES, (message.id, message.sender.id, message.sender.name or ""), strict=True)),
        "INTERCOM_SENDER_DIRECTORY": message.sender.cwd,
        "INTERCOM_CHANNEL": message.channel or "",
    }
    if message.flow is not None:
        step = message.flow
        told |= {
            "INTERCOM_FLOW_ID": step.flow_id,
            "INTERCOM_STEP_ID": step.step_id,
            "INTERCOM_DISPATCH_ID": step.dispatch_id,
        }
    if message.invoked is not None:
        task = message.invoked
        told |= {
            "INTERCOM_INVOCATION_ID": task.id,
            "INTERCOM_RUN_ID": task.run_id,
            "INTERCOM_ACTION": task.action,
        }
    kept = {name: value for name, value in environ.items() if name != "INTERCOM_NAME"}
    return kept | {name: _fitting(value) for name, value in told.items()}


def summary_of(text: str, outcome: str) -> str:
    """Return what a command printed as the summary of a step: something, and no longer than one may be."""
    text = text.strip() or outcome
    return text.encode("utf-8", "replace")[:FLOW_SUMMARY_BYTES].decode("utf-8", "ignore")


def reason_of(text: str) -> str:
    """Return what a command said of a task that it did not do, no longer than such a reason may be."""
    return text[:RUN_TEXT_CHARACTERS]


def _fitting(value: str) -> str:
    return value[:ANSWER_VARIABLE_CHARACTERS].replace("\0", "\ufffd")


def _text(printed: bytes) -> str:
    text = printed.decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("intercom"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
