"""Let another process have a database open: SQLite counts the locks of a process, and a fork shares that count."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2]).fetchall()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def database_held(database: Path, statement: str = "BEGIN IMMEDIATE") -> Iterator[int]:
    """Give the id of a process that has run a statement, and keeps its connection open for the length of the block."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, database, statement], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        yield holder.pid
    finally:
        holder.communicate()
