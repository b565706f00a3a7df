"""Read targets of workflow stages and match patterns against them (protocol 6.12.1)."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from intercom.limits import STAGE_TARGET_CHARACTERS

Kind: TypeAlias = Literal["path", "pattern", "deep-pattern"]

SCHEME = "workflow:"
"""What every stage target and every invocation group begins with."""

_RUN_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class StageTarget(Struct, frozen=True):
    """Hold a target that parses: the root run and the segments below it."""

    run_id: str
    segments: tuple[str, ...]
    kind: Kind

    @property
    def invocation_group(self) -> str:
        """Return the group of the whole invocation this target lies in."""
        return invocation_group(self.run_id)

    @property
    def last(self) -> str:
        """Return the last segment: the stage's id, its name or a pattern for them."""
        return self.segments[-1]

    def with_last(self, segment: str) -> str:
        """Return the text of this target with another last segment."""
        return "/".join((invocation_group(self.run_id), *self.segments[:-1], segment))

    def matches(self, candidate: StageTarget) -> bool:
        """Tell whether this pattern, or path, stands for ``candidate``, which is taken literally.

        Takes time in proportion to the product of both lengths at most, whatever the pattern.
        """
        return self.run_id == candidate.run_id and _matches(self.segments, candidate.segments)


def parse_target(text: str) -> StageTarget | None:
    """Return what ``text`` names, or None when it is no target of a workflow stage.

    A text longer than ``STAGE_TARGET_CHARACTERS`` is none.
    """
    if not text.startswith(SCHEME) or len(text) > STAGE_TARGET_CHARACTERS:
        return None
    run_id, *segments = text[len(SCHEME) :].split("/")
    if not segments or "" in segments or not is_run_id(run_id):
        return None
    kind: Kind = "path"
    if "**" in segments:
        kind = "deep-pattern"
    elif any("*" in segment for segment in segments):
        kind = "pattern"
    return StageTarget(run_id, tuple(segments), kind)


def is_run_id(text: str) -> bool:
    """Tell whether ``text`` is a UUID with one of the versions and the variant a run id has."""
    return _RUN_ID.fullmatch(text) is not None


def removed_form(text: str) -> tuple[str, str] | None:
    """Return run id and stage of the form ``<run uuid>:<stage>``, which is not understood any more."""
    run_id, colon, stage = text.partition(":")
    return (run_id, stage) if colon and stage and _UUID.fullmatch(run_id) else None


def invocation_group(run_id: str) -> str:
    """Return the group of the invocation whose root run has this id."""
    return SCHEME + run_id


def root_run_of(group: str) -> str | None:
    """Return the run named in an invocation group or a subgroup of it; None for any other group."""
    if not group.startswith(SCHEME):
        return None
    return group[len(SCHEME) :].partition("/")[0] or None


def owns_group(owner: str, group: str) -> bool:
    """Tell whether the invocation group ``owner`` is ``group`` or above it; both are normalised."""
    return group == owner or group.startswith(f"{owner}/")


def _matches(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    """Match whole segments; on a mismatch the last ``**`` takes one segment more."""
    at = taken = 0
    star = -1
    star_taken = 0
    while taken < len(segments):
        if at < len(pattern) and pattern[at] == "**":
            star, star_taken = at, taken
            at += 1
        elif at < len(pattern) and segment_matches(pattern[at], segments[taken]):
            at += 1
            taken += 1
        elif star >= 0:
            star_taken += 1
            at, taken = star + 1, star_taken
        else:
            return False
    return all(segment == "**" for segment in pattern[at:])


def segment_matches(pattern: str, segment: str) -> bool:
    """Match one segment other than ``**``: a star stands for any run of characters, all else for itself."""
    if "*" not in pattern:
        return pattern == segment
    first, *middle, last = pattern.split("*")
    if not segment.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = segment.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at + len(last) <= len(segment) and segment.endswith(last)
