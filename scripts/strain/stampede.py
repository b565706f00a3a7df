"""Let a crowd of clients find a crashed broker at the same moment, again and again: one broker must come of it.

Every round begins with what a kill -9 leaves: a stale socket and a pid file, which sometimes holds garbage or names
another living process. Clients start a broker by themselves; beside them others start one directly, as foreign
programs do. In the end exactly one process may serve, everybody must be registered with it, and whoever lost must have
ended well.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from intercom.client import control
from intercom.client.blocking import connect
from intercom.client.spawning import command
from intercom.paths import Paths
from scripts.strain.processes import PATIENCE_S, brokers_of, left_over, own_home, until

ROUNDS = 50
CLIENTS = 20
STARTS = 3
"""Processes beside the clients that want to be the broker themselves."""
LATE = """
import sys
if "serve" in sys.orig_argv:
    import time
    from intercom.server import ownership
    bind = ownership.bind
    def bind_late(path):
        time.sleep({seconds})
        return bind(path)
    ownership.bind = bind_late
"""
"""Makes a broker slow between winning the lock and listening."""


class Crowd:
    """Hold the processes of one round: forked clients that wait for one signal, and direct starts."""

    def __init__(self, paths: Paths, clients: int, starts: int) -> None:
        """Fork the clients; nothing happens before ``let_go``."""
        self._paths = paths
        self._starts = starts
        self._direct: list[subprocess.Popen[bytes]] = []
        barrier, self._barrier = os.pipe()
        leave, self._leave = os.pipe()
        self._results, results = os.pipe()
        self._clients = []
        for number in range(clients):
            child = os.fork()
            if child == 0:
                for ours in (self._barrier, self._leave, self._results):
                    os.close(ours)
                _be_client(paths, f"c{number}", barrier, results, leave)
            self._clients.append(child)
        for theirs in (barrier, leave, results):
            os.close(theirs)

    def let_go(self) -> list[dict[str, Any]]:
        """Let everybody begin at once; return what became of each client, as far as it is known in time."""
        os.close(self._barrier)
        self._direct = [
            subprocess.Popen(command(self._paths), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(self._starts)
        ]
        text = b""
        deadline = time.monotonic() + PATIENCE_S
        while text.count(b"\n") < len(self._clients) and (left := deadline - time.monotonic()) > 0:
            if select.select([self._results], [], [], left)[0]:
                data = os.read(self._results, 1 << 16)
                if not data:
                    break
                text += data
        return [json.loads(line) for line in text.splitlines()]

    def losers(self, serving: int) -> list[str]:
        """Wait for the direct starts that do not serve; say which did not end well."""
        faults = []
        for process in self._direct:
            if process.pid == serving:
                continue
            try:
                _, said = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                faults.append(f"start {process.pid} neither serves nor ends")
                process.kill()
                process.communicate()
                continue
            if process.returncode:
                faults.append(f"a start ended with {process.returncode}: {said.decode(errors='replace').strip()}")
        return faults

    def dismiss(self) -> list[str]:
        """Let the clients leave; say which did not. A direct start that served must have been ended before."""
        os.close(self._leave)
        os.close(self._results)
        faults = []
        for child in self._clients:
            if not until(lambda child=child: os.waitpid(child, os.WNOHANG)[0] == child):  # type: ignore[misc]
                faults.append(f"client {child} does not end")
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        for process in self._direct:
            process.communicate()
        return faults


def _be_client(paths: Paths, name: str, barrier: int, results: int, leave: int) -> None:
    """Register once the barrier falls, tell, and stay until everybody may leave; ends the process."""
    try:
        os.read(barrier, 1)
        try:
            with connect(name, home=paths.home) as session:
                told = {"name": name, "id": session.id, "pid": control.broker_status(paths)["pid"]}
                os.write(results, json.dumps(told).encode() + b"\n")
                os.read(leave, 1)
        except Exception as error:
            os.write(results, json.dumps({"name": name, "error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
    finally:
        os._exit(0)


def run_round(paths: Paths, clients: int, starts: int) -> list[str]:
    """Run one round, which ends with the broker killed; return what was wrong."""
    crowd = Crowd(paths, clients, starts)
    told = crowd.let_go()
    faults = [f"{one['name']} failed: {one['error']}" for one in told if "error" in one]
    if len(told) < clients:
        faults.append(f"{clients - len(told)} clients never said what became of them")
    registered = [one for one in told if "id" in one]
    served = {one["pid"] for one in registered}
    serving = next(iter(served), 0)
    faults += crowd.losers(serving)
    if not until(lambda: len(brokers_of(paths)) == 1):
        faults.append(f"brokers: {brokers_of(paths)}")
    if len(served) != 1 or brokers_of(paths) != [serving]:
        faults.append(f"clients are served by {sorted(served)}, brokers are {brokers_of(paths)}")
    elif paths.pid.read_text() != str(serving):
        faults.append(f"the pid file names {paths.pid.read_text()!r} instead of {serving}")
    if len({one["id"] for one in registered}) != len(registered):
        faults.append("two clients have one id")
    with connect(purpose="control", home=paths.home, start=False) as session:
        listed = {view.name for view in session.list()}
    if listed != {one["name"] for one in registered}:
        faults.append(f"listed: {sorted(map(str, listed))}")
    for pid in brokers_of(paths):
        os.kill(pid, signal.SIGKILL)
    faults += crowd.dismiss()
    until(lambda: not brokers_of(paths))
    return faults


def count_starts(paths: Paths) -> int:
    """Return how often a broker of this home began to serve."""
    logs = [path for path in paths.home.iterdir() if path.name.startswith(paths.log.name)]
    return sum('"event":"started"' in line for path in logs for line in path.read_text().replace(" ", "").splitlines())


def spoil_record(paths: Paths, round_number: int) -> None:
    """Leave the pid file of the killed broker as it is, or with garbage, or with the id of a living process."""
    if round_number % 3:
        paths.pid.write_text("garbage" if round_number % 3 == 1 else str(os.getpid()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when every round left one broker and everybody registered."""
    parser = argparse.ArgumentParser(
        prog="scripts/stampede", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"default {CLIENTS}")
    parser.add_argument("--starts", type=int, default=STARTS, help=f"direct starts beside them (default {STARTS})")
    parser.add_argument("--late-ms", type=int, default=0, help="how slow a broker is between lock and socket")
    options = parser.parse_args(arguments)
    faults: list[str] = []
    begin = time.monotonic()
    with own_home() as paths:
        if options.late_ms:
            hook = paths.home.parent / "hook"
            hook.mkdir()
            (hook / "sitecustomize.py").write_text(LATE.format(seconds=options.late_ms / 1000))
            os.environ["PYTHONPATH"] = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
        for number in range(options.rounds):
            faults += [f"round {number}: {fault}" for fault in run_round(paths, options.clients, options.starts)]
            if not paths.socket.is_socket():
                faults.append(f"round {number}: the killed broker left no socket, so the next one proves nothing")
            spoil_record(paths, number)
        if (starts := count_starts(paths)) != options.rounds:
            faults.append(f"{starts} brokers began to serve in {options.rounds} rounds")
        with connect("last", home=paths.home):
            pass
        control.shutdown(paths)
        until(lambda: not brokers_of(paths))
        faults += left_over(paths)
    for fault in faults:
        print(fault)
    took = time.monotonic() - begin
    print(f"{options.rounds} rounds of {options.clients} clients and {options.starts} starts in {took:.0f} s")
    print("failed" if faults else "passed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
