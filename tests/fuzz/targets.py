"""Read targets that nobody would write, and match patterns against them; a slow and plain rule says what is right."""

from __future__ import annotations

import random
import re
import time

from intercom.core import labels
from intercom.wire.targets import SCHEME, StageTarget, parse_target, removed_form, root_run_of
from tests.fuzz.chance import odd_text
from tests.fuzz.shapes import RUNS
from tests.fuzz.tally import Tally

TEXTS = 400
LONGEST_S = 0.2
SEGMENTS = ("*", "**", "a", "ab", "b", "a*", "*a", "a*b", "*a*", "***", "a**b", "\u00e9*", "", " ", "A")
TALL = ("*a" * 40, "a" * 60, "**", "*" * 30)


def play(number: int) -> Tally:
    """Parse and match."""
    chance, tally = random.Random(number), Tally()
    for _ in range(TEXTS):
        text, other = _text(chance), _text(chance, literal=chance.random() < 0.6)
        begun = time.thread_time()
        found, candidate = parse_target(text), parse_target(other)
        removed_form(text)
        root_run_of(text)
        label = labels.parse(text)
        assert isinstance(label, labels.Label) or str(label)
        if found is not None:
            assert SCHEME + "/".join((found.run_id, *found.segments)) == text
            assert found.with_last(found.last) == text
            assert (found.kind == "path") == (not any("*" in segment for segment in found.segments))
            if candidate is not None:
                matches = found.matches(candidate)
                if len(text) + len(other) < 90:  # the plain rule takes for ever where stars abound
                    assert matches == _matches(found, candidate), f"{text} and {other}"
        tally.count(time.thread_time() - begun, (text, other), LONGEST_S)
    return tally


def _text(chance: random.Random, *, literal: bool = False) -> str:
    draw = chance.random()
    if draw < 0.1:
        return odd_text(chance)
    segments = SEGMENTS[2:5] if literal else SEGMENTS
    if draw > 0.95:
        segments = TALL
    path = "/".join(chance.choice(segments) for _ in range(chance.randrange(1, 6)))
    text = f"{SCHEME}{RUNS[0]}/{path}"
    if draw < 0.2:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(("x", "", "/", ":", "-", "\n", "*")) + text[at + 1 :]
    return text


def _matches(pattern: StageTarget, candidate: StageTarget) -> bool:
    """Match by a regular expression over the whole path: ``**`` is any number of segments, ``*`` stays within one."""
    rule = "".join(
        "(?:/[^/]*)*"
        if segment == "**"
        else "/" + "".join("[^/]*" if part == "*" else re.escape(part) for part in segment)
        for segment in pattern.segments
    )
    return pattern.run_id == candidate.run_id and bool(
        re.fullmatch(rule, "/" + "/".join(candidate.segments), re.DOTALL)
    )
