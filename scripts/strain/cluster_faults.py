"""Kill and freeze brokers and servers of the engine while sessions talk across machines, and hold a ledger against it.

Three NATS servers are one cluster; sessions of one broker send to one of the other all the time: what may wait, what
may not, questions, and what is of use only for a time. After each fault it is told how soon a message was delivered
again, and what the senders were told meanwhile. At the end everything that was told as delivered, queued or answered
must have been shown exactly once, and what may wait in the order in which it was sent.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from intercom.client import blocking
from intercom.errors import IntercomError
from tests.support.brokers import BrokerProcess
from tests.support.engines import NatsServer, three_servers

FAULTS = (
    *("kill 0", "start 0", "kill 1", "start 1", "freeze 2", "thaw 2"),
    *("freeze 0", "freeze 1", "thaw 0", "thaw 1", "broker a", "broker b"),
)
"""One server after the other is gone and back, then most of them at once, then either broker is killed."""
SHORT = ("kill 0", "start 0", "freeze 1", "freeze 2", "thaw 1", "thaw 2", "broker a", "broker b")
WAYS = ("waits", "now", "ask", "limited")
MAY_WAIT = ("waits", "limited")
PAUSE_S = 4.0
"""Between two faults."""
SHORT_PAUSE_S = 0.5
"""The same in the short form."""
NOTICED_S = 0.5
"""After this time what is delivered was sent after the fault."""
LONGEST_S = 60.0
"""Until the engine is back, or a message that waits arrives."""
MUST_ARRIVE = {"delivered", "queued", "answered"}


class Play:
    """Hold servers, brokers, sessions and the ledger."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.servers: list[NatsServer] = three_servers(directory / "nats")
        self.brokers: dict[str, BrokerProcess] = {}
        self.told: dict[str, str] = {}
        self.shown: Counter[str] = Counter()
        """In the order in which it was shown first."""
        self.is_over = Event()
        key = directory / "mesh.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        urls = ", ".join(f'"{server.url}"' for server in self.servers)
        for name in "ab":
            home = directory / name
            home.mkdir(mode=0o700)
            (home / "intercom.toml").write_text(
                f'[cluster]\nurl = [{urls}]\nkey_file = "{key}"\nnode = "{name}"\n', encoding="utf-8"
            )
            self.brokers[name] = BrokerProcess(home)
        self._senders = [Thread(target=self._send, args=(way,), daemon=True) for way in WAYS]
        Thread(target=self._answer, daemon=True).start()
        for sender in self._senders:
            sender.start()

    # --- sessions

    def _answer(self) -> None:
        with blocking.connect("worker", home=self._directory / "b", start=False, timeout=LONGEST_S) as session:
            for message in session.messages():
                self.shown[message.text] += 1
                if message.expects_reply:
                    try:
                        message.reply(f"answer to {message.text}")
                    except IntercomError as error:
                        self.told.setdefault(f"reply to {message.text}", error.code)

    def _send(self, way: str) -> None:
        with blocking.connect(way, home=self._directory / "a", start=False, timeout=LONGEST_S) as session:
            until(lambda: any(view.name == "worker" for view in session.list()))
            count = 0
            while not self.is_over.is_set():
                count += 1
                text = f"{way} {count}"
                try:
                    if way == "ask":
                        answer = session.ask("worker", text, timeout=LONGEST_S).text
                        self.told[text] = "answered" if answer == f"answer to {text}" else "answered wrongly"
                    else:
                        valid_for = LONGEST_S if way == "limited" else None
                        told = session.send("worker", text, queue=way in MAY_WAIT, valid_for=valid_for)
                        self.told[text] = told.state
                except IntercomError as error:
                    self.told[text] = error.code
                time.sleep(0.02)

    # --- faults

    def do(self, fault: str) -> None:
        """Let one thing fail, or be mended."""
        verb, _, which = fault.partition(" ")
        if verb == "broker":
            self.brokers[which].kill()
            self.brokers[which] = BrokerProcess(self._directory / which)
        elif verb == "kill":
            self.servers[int(which)].kill()
        elif verb == "start":
            self.servers[int(which)].start()
        elif verb == "freeze":
            self.servers[int(which)].freeze()
        else:
            self.servers[int(which)].thaw()

    def is_joined(self) -> bool:
        """Tell whether both brokers reach the engine and each other."""
        reports = []
        for broker in self.brokers.values():
            with broker.connect() as client:
                reports.append(client.status()["multiNode"])
        return all(report["status"] == "on" and report["peers"] for report in reports)

    def has_delivered(self, known: set[str]) -> bool:
        """Tell whether anything was delivered that was not told of before."""
        return any(told in ("delivered", "answered") for text, told in list(self.told.items()) if text not in known)

    def end(self) -> list[str]:
        """Let the senders stop, wait for what waits, and return what is wrong."""
        self.is_over.set()
        for sender in self._senders:
            sender.join(2 * LONGEST_S)
        until(self.is_joined)
        must = [text for text, told in self.told.items() if told in MUST_ARRIVE]
        until(lambda: all(self.shown[text] for text in must), fails=False)
        wrong = [f"{text} was told as {self.told[text]} and never shown" for text in must if not self.shown[text]]
        wrong += [f"{text} was shown {count} times" for text, count in self.shown.items() if count > 1]
        for way in MAY_WAIT:
            orders = [int(text.partition(" ")[2]) for text in self.shown if text.startswith(f"{way} ")]
            wrong += [f"{way} {one} was shown before {other}" for one, other in pairwise(orders) if one > other]
        return wrong + [f"{text} was {told}" for text, told in self.told.items() if told == "answered wrongly"]

    def close(self) -> None:
        """End every process."""
        for broker in self.brokers.values():
            broker.close()
        for server in self.servers:
            if server.process.poll() is None:
                server.thaw()
            server.close()


def until(is_so: Callable[[], bool], *, fails: bool = True) -> float:
    """Wait until something is so; return how many seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < LONGEST_S:
        try:
            if is_so():
                return time.monotonic() - began
        except OSError:
            pass  # a broker that is just starting
        time.sleep(0.02)
    if fails:
        raise SystemExit("what was waited for did not come")
    return LONGEST_S


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when the ledger is in order."""
    parser = argparse.ArgumentParser(
        prog="scripts/cluster-faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often all faults happen (default 1)")
    parser.add_argument("--short", action="store_true", help="one fault of each kind, and short pauses")
    options = parser.parse_args(arguments)
    faults, pause_s, halted = (SHORT, SHORT_PAUSE_S, "freeze 2") if options.short else (FAULTS, PAUSE_S, "freeze 1")
    with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        play = Play(Path(directory))
        try:
            print(f"joined after {until(play.is_joined):.1f} s")
            time.sleep(pause_s)
            for fault in faults * options.rounds:
                play.do(fault)
                began = time.monotonic()
                time.sleep(NOTICED_S)
                known = set(play.told)
                if fault != halted:  # of three servers two stand still now: nothing can be delivered
                    until(lambda known=known: play.has_delivered(known))  # type: ignore[misc]  # bound at once
                    print(f"{fault}: delivers again after {time.monotonic() - began:.1f} s", flush=True)
                time.sleep(pause_s)
                print(f"    {dict(Counter(told for text, told in play.told.items() if text not in known))}", flush=True)
            wrong = play.end()
            print(f"in all: {dict(Counter(play.told.values()))}")
        finally:
            play.close()
    for line in wrong:
        print(line)
    print("passed" if not wrong else f"{len(wrong)} entries are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
