"""Hold the list of field cases: what broke for users of such brokers elsewhere, each known by its number.

A case is covered when a test names its number in a docstring; the others wait for what they speak of, and may be
covered in part meanwhile. So none gets lost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.brokers import TOP

SECTIONS = {
    "lifecycle, spawn, locks": (1, 2, 4, 5, 6, 7, 8, 10, 11, 13, 14, 15, 17, 18),
    "sockets, paths, event loop": (19, 20, 22, 23, 24, 26, 27, 29, 31, 32, 33, 34),
    "framing and text": (35, 37, 38, 39, 40, 42, 44),
    "identity, names, targets": (45, 46, 47, 49, 50, 51, 53, 54, 55),
    "groups and visibility": (57, 58, 60, 61, 62),
    "ask and reply": (63, 64, 65, 67, 68, 70),
    "idempotency": (71, 72, 73, 74, 76),
    "reconnect and mailbox": (77, 78, 80, 81, 82, 83, 85, 86, 87, 89),
    "supervisor": (90, 92, 93, 94),
    "stages and workflows": (95, 96, 98, 99),
    "persistence, schedule, disk, time": (100, 102, 104, 105, 106),
    "security": (107, 108, 110, 111),
    "resource exhaustion": (113, 114, 115),
    "command line": (117, 118, 119, 120),
    "more than one node": (122, 123, 124, 125, 126, 127),
    "observability": (128, 130, 131),
    "agent hosts": (133, 134, 135, 136),
}
WAITING = {
    "agent hosts": (64, 81, 82, 87, 133, 134),
    "durable addresses and mailboxes": (78, 80, 85, 86),
    "a client that takes a send for the reply it is": (67,),
    "sending to many at once": (62,),
    "workflow stages": (95, 96, 98, 99),
    "schedules": (104, 105),
    "limits on chains of messages": (113,),
    "several machines": (122, 123, 125, 126, 127),
}
"""Cases by what they speak of and what does not exist yet."""


def named_cases() -> Iterator[tuple[int, str]]:
    """Yield every case that the docstring of a test, or of a module of tests, names, and the file."""
    for path in sorted((TOP / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        tree = ast.parse(path.read_text())
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        texts = [ast.get_docstring(node) for node in (tree, *tests) if node is tree or node.name.startswith("test_")]
        for text in filter(None, texts):
            for number in re.findall(r"\bF(\d+)\b", text):
                yield int(number), path.name


def test_every_case_is_covered_or_waits() -> None:
    known = [number for numbers in SECTIONS.values() for number in numbers]
    waiting = [number for numbers in WAITING.values() for number in numbers]
    covered = {number for number, _ in named_cases()}
    assert len(set(known)) == len(known) and len(set(waiting)) == len(waiting)
    assert covered <= set(known), "a test names a case that does not exist"
    assert covered | set(waiting) == set(known), "a case has no test and waits for nothing"
