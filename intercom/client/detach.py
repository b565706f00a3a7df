"""Start a command that outlives its starter; run as a script, it imports nothing of this package.

The starter runs this file as its child with the command as arguments and a pipe as standard input. This process
starts the command as a grandchild in a session of its own, and waits. When the command ends, this process ends with
the same status, so the starter learns of it; when the starter closes the pipe, or dies, this process ends at once
and the command goes on. So nobody is left with a zombie, whatever the starter does with its children.
"""

import os
import select
import signal
import sys

LOOK_S = 0.02
"""Pause between two looks at the command; it matters only while the starter waits."""
CANNOT_RUN = 127
NULL = "/dev/null"


def main(command: list[str]) -> int:
    """Run ``command`` and return its exit status (128 and the number for a signal), or 0 when nobody waits any more."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        _become(command)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        readable, _, _ = select.select([0], [], [], LOOK_S)
        if readable and not os.read(0, 1):
            return 0


def _become(command: list[str]) -> None:
    try:
        os.setsid()
        null = os.open(NULL, os.O_RDWR)
        os.dup2(null, 0)
        if null > 2:
            os.close(null)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
