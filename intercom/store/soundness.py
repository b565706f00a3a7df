"""Look whether the pages of a database are what SQLite wrote."""

from __future__ import annotations

import sqlite3

from intercom.store.failures import StoreUnusable


def expect_sound(connection: sqlite3.Connection) -> None:
    """Read every page; the time grows with the file, a millisecond per MiB and more.

    Raises ``StoreUnusable`` when one is damaged; SQLite's own errors pass through.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        (_, _, database) = connection.execute("PRAGMA database_list").fetchone()
        raise StoreUnusable("corrupt", f"{database} is damaged ({verdict})")
