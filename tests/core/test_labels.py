"""Test labels: what they say, whom they mean, and that what is shown leads back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.core.labels import DIMENSIONS, Candidate, Found, Label, Unparseable, label_of, parse, resolve, slug


def here(target_id: str, name: str = "builder", **more: Any) -> Candidate:
    return Candidate(target_id, name, more.pop("state", "active"), **more)


# --- the grammar ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("builder", Label("builder")),
        ("@builder", Label("builder")),
        (" @Builder!?).,;] ", Label("builder")),
        ("@builder.main", Label("builder", "main")),
        ("@builder.main.studio", Label("builder", "main", "studio")),
        ("@The Builder 2", Label("the-builder-2")),
        ("@b.worktree:main", Label("b", "main")),
        ("@b.branch:a b.persona:Calm.runtime:x.host:y", Label("b", "a-b", "y", "calm", "x")),
        ("@b.model:m", Label("b", model="m")),
        ("@b#claude", Label("b", harness="claude")),
        ("@b?opus-4.5", Label("b", model="opus-4-5")),
        ("@b.main#claude?opus", Label("b", "main", harness="claude", model="opus")),
        ("@bäcker", Label("bäcker")),
    ],
)
def test_what_a_label_says(text: str, label: Label) -> None:
    """FE 3.4 Resolve target"""
    assert parse(text) == label


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        " . ",
        "@a.b.c.d",
        "@a.colour:red",
        "@a.:x",
        "@a.model:",
        "@a#",
        "@a?x#y",
        "@a#x?",
        "@a@b",
        "@a..b",
        "@a.model:x?y",
        "@model:x",
        "@intercom",
        "@a.b:c:d",
    ],
)
def test_what_is_no_label(text: str) -> None:
    """FE 3.4, A3.5; a trailing question mark is punctuation, not the beginning of a model."""
    if text == "@a#x?":
        assert parse(text) == Label("a", harness="x")
    else:
        assert isinstance(parse(text), Unparseable)


words = st.text(st.sampled_from("abcäß019_-"), min_size=1, max_size=6).filter(lambda text: slug(text) == text)
labels = st.builds(Label, words.filter(lambda word: word != "intercom"), *[st.none() | words] * len(DIMENSIONS))


@given(labels)
def test_a_label_can_be_read_again(label: Label) -> None:
    assert parse(str(label)) == label


@given(st.text(max_size=30))
def test_any_text_is_a_label_or_none(text: str) -> None:
    assert isinstance(parse(text), Label | Unparseable)
    assert isinstance(resolve(text, [here("1")]), Found)


# --- whom it means --------------------------------------------------------------------------------------


def test_an_id_goes_before_a_name() -> None:
    """FE 3.4: an exact id of a non-stale target wins."""
    by_id, by_name = here("Builder"), here("2")
    assert resolve("builder", [by_name, by_id]).candidate == by_id
    assert resolve("OTHER", [here("3", ids=("other",))]).candidate == here("3", ids=("other",))


def test_a_name_that_an_address_gave_goes_before_one_a_session_gave_itself() -> None:
    """FE 3.4: explicit aliases first, one is resolved, several are ambiguous."""
    given_name, own = here("1", is_address=True), here("2")
    assert resolve("@builder", [own, given_name]).candidate == given_name
    found = resolve("@builder", [own, given_name, here("3", is_address=True)])
    assert (found.kind, [each.target_id for each in found.candidates]) == ("ambiguous", ["1", "3"])


def test_all_dimensions_must_fit() -> None:
    one, two = here("1", workspace="Main", model="opus"), here("2", workspace="side", model="opus")
    assert resolve("@builder.main", [one, two]).candidate == one
    assert resolve("@builder.main?opus", [one, two]).candidate == one
    assert resolve("@builder.branch:dev", [here("3", branch="dev"), two]).candidate == here("3", branch="dev")
    assert resolve("@builder.other", [one, two]).kind == "unknown"


def test_a_harness_that_does_not_fit_is_overlooked() -> None:
    """FE 3.4: retry without the harness dimension before giving up."""
    one = here("1", harness="codex")
    assert resolve("@builder#claude", [one]).candidate == one


def test_an_address_of_which_two_machines_tell_is_one() -> None:
    """protocol 6.13: while it moves both do; the one that told of it last is asked."""
    there = [here("1", is_address=True, is_local=False, node=node) for node in ("laptop", "studio")]
    assert resolve("@builder", there).candidate == there[1]


def test_a_model_that_does_not_fit_names_who_is_there() -> None:
    """FE 3.4: a model mismatch names the candidates."""
    one = here("1", model="opus")
    found = resolve("@builder?haiku", [one])
    assert (found.kind, found.candidates) == ("unknown", (one,))


def test_the_only_local_one_wins() -> None:
    """A3.4"""
    local, remote = here("1"), here("2", is_local=False)
    assert resolve("@builder", [remote, local]).candidate == local
    found = resolve("@builder", [remote, local, here("3")])
    assert (found.kind, [each.target_id for each in found.candidates]) == ("ambiguous", ["1", "3"])
    assert resolve("@builder", [remote, here("4", is_local=False)]).kind == "ambiguous"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("builder@", "it holds an @ behind which no machine is named"),
        ("@builder@ ", "it holds an @ behind which no machine is named"),
        ("a@b@c", "it holds several @"),
    ],
)
def test_what_is_wrong_with_an_at_sign_is_said(text: str, why: str) -> None:
    assert resolve(text, [here("1", "other")]).detail == f"This is no label: {why}"


@pytest.mark.parametrize("text", ["builder@studio", "Builder@STUDIO", "@builder@studio", " builder@studio "])
def test_a_name_and_its_machine_are_meant_as_in_the_target_of_a_message(text: str) -> None:
    """FE 3.4, the node dimension, as `send name@node` picks one; also where another one is on this machine."""
    there = here("2", is_local=False, node="studio")
    assert resolve(text, [here("1", node="laptop"), there]).candidate == there
    called_so = here("3", "Builder@studio")
    assert resolve(text, [called_so, there]).candidate == called_so, "as in the target of a message"


def test_a_name_that_is_on_no_such_machine_is_unknown() -> None:
    """FE 3.4: what is said of it is true, and may be followed."""
    found = resolve("builder@studio", [here("1", node="laptop")])
    assert (found.kind, found.detail) == ("unknown", "Nobody within reach is called builder on a machine called studio")
    two = [here("1", node="studio", is_local=False), here("2", node="studio", is_local=False)]
    assert resolve("builder@studio", two).kind == "ambiguous"


@pytest.mark.parametrize("stale", [{"state": "closed"}, {"can_take": False}])
def test_who_has_ended_is_not_meant(stale: dict[str, Any]) -> None:
    """FE 3.4, open point 15: stale targets never match, and are named as unavailable."""
    over = here("1", **stale)
    assert resolve("1", [over]).candidate is None
    found = resolve("@builder", [over])
    assert (found.kind, found.candidates) == ("unavailable", (over,))
    assert resolve("@builder", [over, here("2")]).candidate == here("2")


candidates = st.builds(
    Candidate,
    st.uuids().map(str),
    st.sampled_from(["builder", "Builder", "intercom", "?", "x"]),
    st.just("active"),
    is_address=st.booleans(),
    is_local=st.booleans(),
    workspace=st.sampled_from([None, "main", "side"]),
    harness=st.sampled_from([None, "claude", "codex"]),
    model=st.sampled_from([None, "opus 4.5", "o"]),
)


@given(st.lists(candidates, max_size=6, unique_by=lambda each: each.target_id))
def test_what_is_shown_leads_to_that_one_alone(among: list[Candidate]) -> None:
    """A3.4: labels that each resolve alone."""
    for candidate in among:
        assert resolve(label_of(candidate, among), among).candidate == candidate


def test_the_shortest_label_is_shown() -> None:
    """FE 3.2: the shortest one that resolves to it alone."""
    one, two = here("1", workspace="main", model="a"), here("2", workspace="main", model="b")
    assert [label_of(each, [one, two]) for each in (one, two)] == ["@builder?a", "@builder?b"]
    assert label_of(one, [one]) == "@builder"


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_label_reads_as_it_is_written(dimension: str) -> None:
    """FE 3.4: what is shown leads back."""
    label = Label("builder", **{dimension: "x"})
    assert parse(str(label)) == label


@pytest.mark.parametrize(
    ("text", "expected"),
    [("--The  -  Builder--", "the-builder"), ("!?", ""), ("a_b", "a_b")],
)
def test_a_run_of_what_is_no_letter_is_one_hyphen(text: str, expected: str) -> None:
    assert slug(text) == expected


def test_the_first_digits_of_an_id_mean_whoever_is_shown_so() -> None:
    """FE 3.4: lists show eight of them."""
    one = here("1a2b3c4d-0000-4000-8000-000000000000", "builder")
    assert resolve("1a2b3c4d", [one, here("other", "other")]) == Found(one)
    assert resolve("1A2B3C4D", [one]) == Found(one)
    assert resolve("1a2b3c4", [one]).candidate is None


def test_a_name_without_letters_has_no_label() -> None:
    one = here("id", "!!!", workspace="w")
    assert label_of(one, [one]) == "id"
    assert resolve("!!!", [one]) == Found(one)
