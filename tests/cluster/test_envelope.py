"""Test what brokers tell each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode

from intercom.cluster.envelope import SEVERAL, Enclosed, Foreign, enclose, enclosed, seal, unseal

KEY, OTHER = bytes(32), bytes(31) + b"\1"


def sealed(key: bytes = KEY, to_broker: str = "b") -> bytes:
    body = '{"text":"ü \\",\\"mac\\":\\""}'.encode()
    return seal(key, "send", body, from_broker="a", epoch=3, to_broker=to_broker, delivery_id="d")


def test_what_is_sealed_is_read() -> None:
    envelope = unseal(KEY, sealed(), to_broker="b")
    assert (envelope.kind, envelope.delivery_id, envelope.from_broker, envelope.epoch) == ("send", "d", "a", 3)
    assert bytes(envelope.body) == '{"text":"ü \\",\\"mac\\":\\""}'.encode()


@settings(max_examples=30)
@given(st.none() | st.text() | st.lists(st.integers(-9, 9), max_size=5))
def test_any_body_survives(body: object) -> None:
    data = seal(KEY, "k", encode(body), from_broker="a", epoch=1)
    assert bytes(unseal(KEY, data).body) == encode(body)


@settings(max_examples=60)
@given(st.integers(0, len(sealed()) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(place: int, by: int) -> None:
    """A wrong mac is dropped: whatever is changed, nothing of it is believed."""
    data = bytearray(sealed())
    data[place] ^= by
    with pytest.raises(Foreign):
        unseal(KEY, bytes(data), to_broker="b")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no envelope"),
        (b'{"v":1}', "no envelope"),
        (sealed(OTHER), "another key"),
        (sealed(to_broker="c"), "another broker"),
        (sealed()[:-1], "no envelope"),
    ],
)
def test_what_is_foreign_is_told(data: bytes, why: str) -> None:
    with pytest.raises(Foreign, match=why):
        unseal(KEY, data, to_broker="b")


def test_several_letters_in_one_envelope_are_read_in_order() -> None:
    letters = [Enclosed("send", "d", Raw(b'{"a":1}')), Enclosed("outcome", "e", Raw(b"[]"))]
    body = enclose(letters)
    envelope = unseal(KEY, seal(KEY, SEVERAL, body, from_broker="a", epoch=1, to_broker="b"), to_broker="b")
    read = enclosed(envelope)
    assert [(each.kind, each.delivery_id, bytes(each.body)) for each in read] == [
        ("send", "d", b'{"a":1}'),
        ("outcome", "e", b"[]"),
    ]
    assert {(each.from_broker, each.to_broker, each.epoch) for each in read} == {("a", "b", 1)}


def test_letters_that_cannot_be_read_are_foreign() -> None:
    envelope = unseal(KEY, seal(KEY, SEVERAL, b'[["send"]]', from_broker="a", epoch=1))
    with pytest.raises(Foreign, match="cannot be read"):
        enclosed(envelope)


def test_another_version_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.cluster.envelope.VERSION", 2)
    data = sealed()
    monkeypatch.undo()
    with pytest.raises(Foreign, match="version 2"):
        unseal(KEY, data, to_broker="b")
