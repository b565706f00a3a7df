"""Test whom events concern, and what is shown of them."""

from __future__ import annotations

from intercom.core.concerns import Concern, key
from intercom.store.history import TABLES
from tests.core.harness import World


def test_every_kind_of_row_is_followed() -> None:
    """What is in the journal can be told: a kind of row without a concern would be one that nobody can follow."""
    assert World().broker._following.watches.followed == set(TABLES)


def test_a_preview_is_cut() -> None:
    """FE 0.3: previews to 80 code points."""
    detail = {"preview": "é" * 81, "reason": "x" * 100}
    shown = Concern((), {}, (), detail).shown
    assert shown == {"preview": "é" * 80, "reason": "x" * 100}
    assert Concern((), {}, (), {"preview": "é" * 80}).shown == {"preview": "é" * 80}


def test_keys() -> None:
    assert key("session", "ABC") == "session:abc"
    assert key("message", "ABC") == "message:ABC"
