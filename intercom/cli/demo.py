"""Show the main job on real input: a worker answers a planner, and the broker is killed in the middle.

The worker is `intercom listen` with a shell script that counts what is in a directory, the planner is this process.
What the worker did is read from its own log; what the answers must be is counted here, in another way.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.ending import Watched
from intercom.cli.identity import MOMENT_S
from intercom.cli.render import Output, visible
from intercom.cli.status import quiet_report
from intercom.cli.stop import stop
from intercom.client import blocking
from intercom.client.spawning import environment
from intercom.errors import AccessDenied, IntercomError, UsageError
from intercom.limits import DEMO_STEP_S, GONE_POLL_MS, PROBE_MS
from intercom.paths import Paths, resolve_home

USAGE = "[DIRECTORY]"
DESCRIPTION = """Show a worker answering a planner's questions about a directory (default: the working directory).

A broker of its own starts by itself in a temporary home. While the second question is being worked on, the broker is
killed; a new one starts by itself and the answer arrives all the same. Ends with 0 only when every question was
answered exactly once, and rightly.
"""

Result = TypeVar("Result")

SCRIPT = r"""#!/bin/sh
# Answers one question, read from standard input, about the directory INTERCOM_DEMO_DIRECTORY.
# Hidden entries and __pycache__ are left out.
question=$(cat)
printf '%s\n' "$INTERCOM_MESSAGE_ID" >>"$INTERCOM_DEMO_LOG"
cd -- "$INTERCOM_DEMO_DIRECTORY" || exit 1
each() { find . \( -name '.?*' -o -name __pycache__ \) -prune -o -type f "$@"; }
case $question in
'How many files are there?')
    each -print0 | tr -dc '\0' | wc -c ;;
'How many lines do they have?')
    lines=$(each -exec cat {} + | wc -l)
    # This is the question in whose middle the broker dies: wait until it is dead.
    while [ ! -e "$INTERCOM_DEMO_GO" ]; do sleep 0.02; done
    echo "$lines" ;;
'How many bytes has the largest?')
    each -exec ls -lnq {} + | awk '$5 > most { most = $5 } END { print most + 0 }' ;;
*)
    echo 'the demo has no answer to that' >&2
    exit 1 ;;
esac
"""
FILES = "How many files are there?"
LINES = "How many lines do they have?"
LARGEST = "How many bytes has the largest?"
QUESTIONS = (FILES, LINES, LARGEST)


class DemoFailed(IntercomError):
    """Say which promise was not kept."""

    code = "demo_failed"


class Asked(NamedTuple):
    """Hold a question of the planner and the answer it got."""

    question: str
    message_id: str
    answer: str
    reply_to: str | None


class Switch(NamedTuple):
    """Name the processes of the killed broker and of the one that took its place."""

    killed: int
    successor: int


def configure(parser: Parser) -> None:
    """Add the options of ``demo``."""
    parser.add_argument("words", nargs="*", metavar="DIRECTORY", help="what the questions are about")
    add_common(parser, timeout="has no effect here")


def run(arguments: Namespace, output: Output) -> int:
    """Play the demo and return 0 when every promise was kept."""
    if len(arguments.words) > 1:
        raise UsageError("the demo takes one directory")
    directory = Path(os.path.realpath(arguments.words[0] if arguments.words else "."))
    _require_readable(directory)
    with _temporary() as place:
        demo = Demo(Path(os.path.realpath(place)), directory, output)
        document = demo.play()
    output.document({"ok": True, **document})
    output.line(
        f"checked: {len(QUESTIONS)} questions, each handled once by the worker and answered once to the planner, all "
        f"answers equal to an independent count; broker {document['killedBroker']} was killed, "
        f"broker {document['newBroker']} took over"
    )
    return 0


def _require_readable(directory: Path) -> None:
    """Raise ``UsageError`` for what is no directory, and ``AccessDenied`` for one that may not be looked into."""
    try:
        os.scandir(directory / ".").close()
        may_enter = os.access(directory, os.X_OK)
    except PermissionError:
        may_enter = False
    except OSError as error:
        raise UsageError(f"{clean(str(directory))} is not a directory ({error.strerror})") from error
    if not may_enter:
        raise AccessDenied(f"This process may not look into {clean(str(directory))}", hint="Name another directory.")


def _temporary() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="intercom-demo-")
    except OSError as error:
        raise AccessDenied(
            f"There is no place for temporary files: {error.strerror or error}", hint="Let TMPDIR name one."
        ) from error


class Demo:
    """Hold one performance: its temporary directory, its broker's home, and what the worker leaves behind."""

    def __init__(self, place: Path, directory: Path, output: Output) -> None:
        self._directory = directory
        self._output = output
        self._paths = Paths(resolve_home(str(place / "home"), {}))
        self._script = place / "answer.sh"
        self._handled = place / "handled"
        self._go = place / "go"
        self._events = place / "events"
        self._complaints = place / "complaints"

    def play(self) -> dict[str, Any]:
        """Play everything and return what happened; raise ``DemoFailed`` when it was not as promised."""
        self._script.write_text(SCRIPT)
        before = count(self._directory)
        self._output.line(f"the questions are about {visible(str(self._directory))}")
        try:
            with self._worker() as worker:
                asked, switch, stray = self._plan(worker)
        finally:
            with suppress(IntercomError):
                stop(self._paths, DEMO_STEP_S)
        self._check(asked, stray, (before, count(self._directory)))
        return {
            "directory": str(self._directory),
            "answers": {each.question: each.answer for each in asked},
            "killedBroker": switch.killed,
            "newBroker": switch.successor,
        }

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker as a process of its own and end it."""
        # Dates and sorting of a language have no place in an answer, and patterns must match any bytes.
        added = {
            "LC_ALL": "C",
            "INTERCOM_DEMO_DIRECTORY": str(self._directory),
            "INTERCOM_DEMO_LOG": str(self._handled),
            "INTERCOM_DEMO_GO": str(self._go),
        }
        command = [sys.executable, "-P", "-m", "intercom", "listen", "--as", "worker", "--json"]
        command += ["--home", str(self._paths.home), "--answer", f"sh {shlex.quote(str(self._script))}"]
        with self._events.open("wb") as events, self._complaints.open("wb") as complaints:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=events,
                stderr=complaints,
                cwd=self._directory,
                env=environment(os.environ) | added,
            )
        try:
            yield process
        finally:
            end(process)

    def _plan(self, worker: subprocess.Popen[bytes]) -> tuple[list[Asked], Switch, int]:
        """Be the planner: ask everything; return the answers, the two brokers, and how many messages came beside."""
        asked = []
        with blocking.connect("planner", home=self._paths.home, model="intercom demo") as planner:
            broker = quiet_report(self._paths, DEMO_STEP_S)["pid"]
            self._output.line(f"planner: registered; broker {broker} started by itself")

            def has_come() -> bool:
                if worker.poll() is not None:
                    raise DemoFailed(f"the worker ended with {worker.returncode}: {self._said()}")
                return any(view.name == "worker" for view in planner.list())

            until(has_come, "the worker did not register")
            self._output.line(f"worker: registered (process {worker.pid})")
            switch = None
            for question in QUESTIONS:
                self._output.line(f"planner: asks: {question}")
                if question == LINES:
                    with Killing(self) as killer:
                        asked.append(self._ask(planner, question))
                    switch = killer.result()
                else:
                    asked.append(self._ask(planner, question))
                self._output.line(f"worker: answers: {visible(asked[-1].answer)}")
            assert switch is not None
            until(lambda: len(self._answered()) == len(QUESTIONS), "the worker was not told that its answers arrived")
            end(worker)
            # What was written to this session before this answer has arrived with it.
            planner.list()
            stray = 0
            while planner.receive(timeout=MOMENT_S) is not None:
                stray += 1
        return asked, switch, stray

    def _ask(self, planner: blocking.Session, question: str) -> Asked:
        message_id = str(uuid.uuid4())
        answer = planner.ask("worker", question, message_id=message_id, timeout=2 * DEMO_STEP_S)
        return Asked(question, message_id, answer.text.strip(), answer.reply_to)

    def kill_broker(self) -> Switch:
        """Kill the broker once the worker is at work on the second question, and let it go on with the next one."""
        until(lambda: len(self.handled()) == 2, "the worker did not get the second question")
        old = int(quiet_report(self._paths, DEMO_STEP_S)["pid"])
        with Watched(old) as process:
            os.kill(old, signal.SIGKILL)
            if not process.wait(DEMO_STEP_S):
                raise DemoFailed(f"broker {old} outlived SIGKILL")
        self._output.line(f"--- broker {old} is killed while the worker is at work")
        report: dict[str, Any] = {}

        def both_are_back() -> bool:
            nonlocal report
            with suppress(IntercomError):
                report = quiet_report(self._paths, PROBE_MS / 1000)
            return report.get("sessions") == 2

        until(both_are_back, "planner and worker did not come back")
        self._output.line(f"--- broker {report['pid']} was started by them, both are back")
        self._go.touch()
        return Switch(old, int(report["pid"]))

    def handled(self) -> list[str]:
        """Return the message ids the worker's script was run for."""
        try:
            return self._handled.read_text().splitlines()
        except FileNotFoundError:
            return []

    def _check(self, asked: list[Asked], stray: int, truths: tuple[dict[str, int], dict[str, int]]) -> None:
        for each in asked:
            # Before and after are the same, unless somebody writes into the directory while the demo runs.
            least, most = sorted(truth[each.question] for truth in truths)
            if not each.answer.isdecimal() or not least <= int(each.answer) <= most:
                raise DemoFailed(f"{each.question} was answered {each.answer}, but it is {least} to {most}")
            if each.reply_to != each.message_id:
                raise DemoFailed(f"the answer to {each.message_id} says that it answers {each.reply_to}")
        if self.handled() != [each.message_id for each in asked]:
            raise DemoFailed(f"the worker handled {self.handled()}, not each question once")
        if self._answered() != self.handled():
            raise DemoFailed(f"the worker's answers to {self._answered()} were taken, not those to {self.handled()}")
        if stray:
            raise DemoFailed(f"the planner got {stray} messages beside the answers")
        if self._said():
            raise DemoFailed(f"the worker complained: {self._said()}")

    def _answered(self) -> list[str]:
        """Return the message ids whose answer was delivered, as the worker tells."""
        lines = self._events.read_bytes().split(b"\n")[:-1]  # the last one may not be complete
        events = [json.loads(line) for line in lines]
        return [event["messageId"] for event in events if event["event"] == "answered"]

    def _said(self) -> str:
        said = self._complaints.read_text(errors="replace").strip()
        return "" if said.startswith("listening as worker") and "\n" not in said else said


class Killing:
    """Kill the broker in a thread for the length of a ``with`` block; ``result`` is known after it."""

    def __init__(self, demo: Demo) -> None:
        self._switch: Switch | None = None
        self._error: Exception | None = None
        self._demo = demo
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killing:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for the thread; what went wrong in it explains what went wrong in the block."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def result(self) -> Switch:
        """Return the two brokers."""
        assert self._switch is not None
        return self._switch

    def _run(self) -> None:
        try:
            self._switch = self._demo.kill_broker()
        except Exception as error:
            self._error = error


def count(directory: Path) -> dict[str, int]:
    """Count what the questions ask for, without the commands that answer them."""
    files = lines = largest = 0
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if _is_counted(name)]
        for name in filter(_is_counted, names):
            path = os.path.join(place, name)
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            files += 1
            largest = max(largest, os.path.getsize(path))
            with suppress(OSError), open(path, "rb") as file:
                lines += sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return {FILES: files, LINES: lines, LARGEST: largest}


def _is_counted(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def until(condition: Callable[[], bool], complaint: str) -> None:
    """Wait until ``condition`` holds; raise ``DemoFailed`` after ``DEMO_STEP_S``."""
    deadline = time.monotonic() + DEMO_STEP_S
    while not condition():
        if time.monotonic() >= deadline:
            raise DemoFailed(complaint)
        time.sleep(GONE_POLL_MS / 1000)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process of ours, politely first."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(DEMO_STEP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
