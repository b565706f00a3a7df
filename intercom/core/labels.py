"""Read labels, and find whom among candidates one means (protocol 13.2).

    [@]name[.workspace[.node]][.key:value ...][#harness][?model]
    name@node

Rule 1: an exact id goes before every label. Rule 2: a name that was given by an address goes before names that sessions
give themselves. Rule 3: the label shown for a candidate leads to that one alone. Rule 4: whatever reaches somebody as
the target of a message reaches the same one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from intercom.limits import SHORT_ID_CHARACTERS

DIMENSIONS = ("workspace", "node", "profile", "harness", "model")
_KEYS = {
    "workspace": "workspace",
    "worktree": "workspace",
    "branch": "workspace",
    "profile": "profile",
    "persona": "profile",
    "harness": "harness",
    "runtime": "harness",
    "model": "model",
    "node": "node",
    "host": "node",
}
"""Keys of segments, and the dimension each names."""
NODE_SIGN = "@"
"""Before a label, and between a name and the machine on which it is meant."""
_PUNCTUATION = ".,!?;)]"
RESERVED = "intercom"
"""What the broker calls itself: nobody can be invoked by that name."""
_PLAIN_SEGMENTS = 2
"""Segments without a key that may follow the name."""


class Label(Struct, frozen=True):
    """Hold what a label says."""

    name: str
    workspace: str | None = None
    node: str | None = None
    profile: str | None = None
    harness: str | None = None
    model: str | None = None

    @property
    def dimensions(self) -> dict[str, str]:
        """Return what is said beside the name."""
        return {name: value for name in DIMENSIONS if (value := getattr(self, name)) is not None}

    def without(self, dimension: str) -> Label:
        """Return the label that leaves this open."""
        given = {name: value for name, value in self.dimensions.items() if name != dimension}
        return Label(self.name, **given)

    def __str__(self) -> str:
        """Return the label as it can be read again."""
        text = f"@{self.name}"
        if self.workspace is not None:
            text += f".{self.workspace}"
        if self.node is not None:
            text += f".{self.node}" if self.workspace is not None else f".node:{self.node}"
        if self.profile is not None:
            text += f".profile:{self.profile}"
        if self.harness is not None:
            text += f"#{self.harness}"
        return text if self.model is None else f"{text}?{self.model}"


class Unparseable(Struct, frozen=True):
    """Say why a text is no label."""

    detail: str


class Candidate(Struct, frozen=True):
    """Describe somebody who can be meant."""

    target_id: str
    name: str
    """As it is shown."""
    state: Literal["active", "reconnecting", "away", "closed"]
    is_address: bool = False
    """Its name was given by an address."""
    can_take: bool = True
    """False: it is here and takes nothing more."""
    is_local: bool = True
    authority: str | None = None
    """The broker that answers for it, when that is another one."""
    ids: tuple[str, ...] = ()
    """Other ids it is known by."""
    workspace: str | None = None
    branch: str | None = None
    node: str | None = None
    profile: str | None = None
    harness: str | None = None
    model: str | None = None

    @property
    def is_stale(self) -> bool:
        """Tell whether nothing can be asked of it."""
        return self.state == "closed" or not self.can_take

    def has(self, dimension: str, value: str) -> bool:
        """Tell whether it is what a label says in one dimension."""
        if dimension == "workspace":
            return value in (slug(self.workspace or ""), slug(self.branch or ""))
        return slug(getattr(self, dimension) or "") == value


class Found(Struct, frozen=True):
    """Hold whom a label means, or why it means nobody."""

    candidate: Candidate | None
    kind: Literal["ambiguous", "unknown", "unparseable", "unavailable"] | UnsetType = UNSET
    detail: str = ""
    candidates: tuple[Candidate, ...] = ()
    session: Any = None
    """The ``Session`` it means, when that is here and stands for itself."""


def slug(text: str) -> str:
    """Return a text in lower case, every run of characters that are neither letters nor digits as one hyphen."""
    parts: list[str] = []
    for character in text.lower():
        if character.isalnum() or character == "_":
            parts.append(character)
        elif parts and parts[-1] != "-":
            parts.append("-")
    return "".join(parts).strip("-")


def parse(text: str) -> Label | Unparseable:
    """Read a label."""
    rest = text.strip().rstrip(_PUNCTUATION).rstrip()
    rest = rest.removeprefix("@")
    if "@" in rest:
        node = rest.rpartition("@")[2]
        return Unparseable("it holds an @ behind which no machine is named" if not slug(node) else "it holds several @")
    given: dict[str, str] = {}
    rest, has_model, model = rest.partition("?")
    rest, has_harness, harness = rest.partition("#")
    for is_there, dimension, value in ((has_harness, "harness", harness), (has_model, "model", model)):
        if is_there and (refused := _give(given, dimension, value)) is not None:
            return refused
    name, *segments = rest.split(".")
    if ":" in name or not slug(name):
        return Unparseable("it has no name")
    if slug(name) == RESERVED:
        return Unparseable(f"{RESERVED} is the broker itself")
    plain = iter(("workspace", "node"))
    if sum(":" not in segment for segment in segments) > _PLAIN_SEGMENTS:
        return Unparseable("a name is followed by a workspace and a node at most")
    for segment in segments:
        word, has_key, value = segment.partition(":")
        if not has_key:
            refused = _give(given, next(plain), segment)
        elif (dimension := _KEYS.get(slug(word), "")) == "":
            refused = Unparseable(f"it names {slug(word) or 'nothing'}, which is none of {', '.join(sorted(_KEYS))}")
        else:
            refused = _give(given, dimension, value)
        if refused is not None:
            return refused
    return Label(slug(name), **given)


def _give(given: dict[str, str], dimension: str, value: str) -> Unparseable | None:
    if "#" in value or "?" in value or ":" in value:
        return Unparseable(f"its {dimension} holds a sign that begins something else")
    if not slug(value):
        return Unparseable(f"its {dimension} is empty")
    if dimension in given:
        return Unparseable(f"it names two of {dimension}")
    given[dimension] = slug(value)
    return None


def resolve(text: str, candidates: Sequence[Candidate]) -> Found:
    """Return whom a label or an id means among candidates."""
    wanted = text.strip()
    folded = wanted.lower()
    live = [candidate for candidate in candidates if not candidate.is_stale]
    for candidate in live:
        if wanted and folded in (each.lower() for each in (candidate.target_id, *candidate.ids)):
            return Found(candidate)
    label = parse(wanted)
    if isinstance(label, Unparseable):
        if seen := _as_listed(folded, live) or _on_node(folded, live):
            return _one_of(wanted, seen)
        name, _, node = wanted.rpartition(NODE_SIGN)
        if slug(name) and slug(node) and NODE_SIGN not in name:
            return Found(None, "unknown", f"Nobody within reach is called {name} on a machine called {node}")
        return Found(None, "unparseable", f"This is no label: {label.detail}")
    found = _matching(label, live)
    if not found and label.harness is not None:
        found = _matching(label.without("harness"), live)
    if found:
        return _one_of(label, found)
    if seen := _as_listed(folded, live):
        return _one_of(wanted, seen)
    return _nobody(label, live, [candidate for candidate in candidates if candidate.is_stale])


def _matching(label: Label, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those with this name and every dimension; those whose address has the name go before the others."""
    dimensions = label.dimensions
    found = [
        candidate
        for candidate in candidates
        if slug(candidate.name) == label.name
        and all(candidate.has(dimension, value) for dimension, value in dimensions.items())
    ]
    return [candidate for candidate in found if candidate.is_address] or found


def _as_listed(folded: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those who are shown so: by a name that no label can say, or by the first digits of an id."""
    name = folded.removeprefix("@")
    found = [candidate for candidate in candidates if candidate.name.strip().lower() in (folded, name)]
    if not found and len(name) == SHORT_ID_CHARACTERS:
        found = [
            candidate
            for candidate in candidates
            if any(each.lower().startswith(name) for each in (candidate.target_id, *candidate.ids))
        ]
    return [candidate for candidate in found if candidate.is_address] or found


def _on_node(folded: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those of a name on one machine, written as in the target of a message: ``name@node``."""
    name, sign, node = folded.removeprefix(NODE_SIGN).rpartition(NODE_SIGN)
    if not sign:
        return []
    return _as_listed(name, [each for each in candidates if (each.node or "").lower() == node])


def _one_of(label: Label | str, found: list[Candidate]) -> Found:
    found = list({candidate.target_id: candidate for candidate in found}.values())  # an address moves: two tell of it
    if len(found) == 1:
        return Found(found[0])
    local = [candidate for candidate in found if candidate.is_local]
    if len(local) == 1:
        return Found(local[0])
    listed = local or found
    return Found(None, "ambiguous", f"{len(listed)} are called {label}", tuple(listed))


def _nobody(label: Label, live: list[Candidate], stale: list[Candidate]) -> Found:
    if label.model is not None and (found := _matching(label.without("model"), live)):
        detail = f"Nobody called {label.without('model')} works with the model {label.model}"
        return Found(None, "unknown", detail, tuple(found))
    if found := _matching(label, stale):
        return Found(None, "unavailable", f"{label} has ended, or takes nothing more", tuple(found))
    return Found(None, "unknown", f"Nobody within reach is called {label}")


def label_of(candidate: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return the shortest label that leads to a candidate alone; its id when none does."""
    for label in _labels(candidate):
        if resolve(str(label), candidates).candidate == candidate:
            return str(label)
    return candidate.target_id


def _labels(candidate: Candidate) -> Iterator[Label]:
    """Yield what can be said of somebody, from the least to the most."""
    name = slug(candidate.name)
    if not name or name == RESERVED:
        return
    known = {dimension: value for dimension in DIMENSIONS if (value := slug(getattr(candidate, dimension) or ""))}
    for count in range(len(known) + 1):
        for chosen in combinations(known, count):
            yield Label(name, **{dimension: known[dimension] for dimension in chosen})
