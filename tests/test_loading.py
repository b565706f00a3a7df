"""Load modules without what they would bring along for nothing."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from intercom.loading import later, without


def test_a_module_is_not_there_within_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with without("this"), pytest.raises(ImportError):
        import_module("this")
    assert "this" not in sys.modules


def test_it_can_be_imported_afterwards_even_when_the_block_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keyword", raising=False)
    with pytest.raises(ZeroDivisionError), without("keyword"):
        raise ZeroDivisionError
    import keyword

    assert keyword.iskeyword("for")


def test_what_is_loaded_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    with without("json"):
        assert sys.modules["json"] is json
    assert sys.modules["json"] is json


def test_a_module_is_loaded_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keyword", raising=False)
    with later("keyword", given=7):
        import keyword as early
    assert "keyword" not in sys.modules
    assert early.given == 7  # type: ignore[attr-defined]
    assert "keyword" not in sys.modules
    assert early.iskeyword("for")
    import keyword

    assert keyword is not early and keyword is sys.modules["keyword"]


def test_it_may_be_used_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keyword", raising=False)
    with later("keyword"):
        from keyword import iskeyword

        assert iskeyword("for")
        loaded = sys.modules["keyword"]
    assert sys.modules["keyword"] is loaded
    assert not hasattr(loaded, "given")


def test_one_that_is_loaded_is_not_replaced() -> None:
    import json

    with later("json", dumps=None):
        assert sys.modules["json"] is json and json.dumps([]) == "[]"
