from __future__ import annotations

import stat
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from intercom.cli.identity import MOMENT_S, _return_address, name_of, opened, time_left
from intercom.cli.main import main
from intercom.client import blocking
from intercom.errors import NoBroker, RegistrationRefused, UsageError
from intercom.paths import Paths
from intercom.wire.mail import Hold


def test_the_name_is_the_flag_then_the_variable_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 7, Identity of a command."""
    monkeypatch.setenv("INTERCOM_NAME", " from environment ")
    assert name_of(Namespace(name="flag ")) == "flag"
    assert name_of(Namespace(name=None)) == "from environment"
    monkeypatch.setenv("INTERCOM_NAME", "")
    assert name_of(Namespace(name=None)) is None
    with pytest.raises(UsageError):
        name_of(Namespace(name="  "))


def test_a_name_is_one_line_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for verbs that only remember something under it."""
    for name in ("a\nb", "a\x1b[2J", "default"):
        with pytest.raises(UsageError):
            name_of(Namespace(name=name))
        monkeypatch.setenv("INTERCOM_NAME", name)
        with pytest.raises(UsageError):
            name_of(Namespace(name=None))


def test_what_is_left_of_the_time_is_never_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert time_left(Namespace(timeout=None, began=98.0), 10_000) == 8.0
    assert time_left(Namespace(timeout=5.0, began=98.0), 10_000) == 3.0
    assert time_left(Namespace(timeout=5.0, began=10.0), 10_000) == MOMENT_S


@pytest.mark.parametrize(
    ("argv", "seconds"),
    [
        (["list"], 5),
        (["groups"], 5),
        (["send", "worker", "hello"], 10),
        (["ask", "worker", "why"], 10),
        (["listen"], 10),
        *[([*call, "--timeout", "3"], 3) for call in (["list"], ["groups"], ["send", "a", "b"], ["ask", "a", "b"])],
        (["listen", "--timeout", "3"], 3),
        (["list", "--timeout", "60"], 10),
    ],
)
def test_every_verb_keeps_its_time_already_while_connecting(
    home: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], seconds: float
) -> None:
    """The times are those of ``--help``; connecting alone never takes more than ten seconds."""
    taken = []

    def connect(*_: object, timeout: float, **__: object) -> NoReturn:
        taken.append(timeout)
        raise NoBroker("none")

    monkeypatch.setattr(blocking, "connect", connect)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert main([*argv, "--home", str(home)]) == 5
    assert taken == [seconds]


def test_the_same_occasion_has_the_same_return_address(home: Path) -> None:
    paths = Paths(home)
    first = _return_address(paths, "send", "m-1")
    assert first == _return_address(paths, "send", "m-1")
    assert len({first, _return_address(paths, "ask", "m-1"), _return_address(paths, "send", "m-2")}) == 3
    [key] = paths.identities.iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.identities.stat().st_mode) == 0o700
    assert len(key.read_bytes()) == 32


def test_another_home_has_another_one(home: Path) -> None:
    assert _return_address(Paths(home / "a"), "send", "m") != _return_address(Paths(home / "b"), "send", "m")


@pytest.mark.parametrize("damage", ["directory", "short"])
def test_without_a_secret_a_session_is_like_no_other(home: Path, damage: str) -> None:
    paths = Paths(home)
    paths.identities.mkdir(parents=True)
    place = paths.identities / "command.key"
    if damage == "directory":
        place.mkdir()
    else:
        place.write_bytes(b"short")
    assert _return_address(paths, "send", "m") is None


@pytest.mark.parametrize(("hold", "goes_on"), [("none", True), ("free", False)])
def test_who_only_speaks_goes_without_an_address_where_no_more_are_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, hold: Hold, goes_on: bool
) -> None:
    """What a command says matters more than what answers it later; to receive needs the address."""
    asked = []

    def connect(*_: object, address: str | bool, **__: object) -> AbstractContextManager[str]:
        asked.append(address)
        if address is not False:
            raise RegistrationRefused("full", code="address_limit")
        return nullcontext("session")

    monkeypatch.setattr(blocking, "connect", connect)
    arguments = Namespace(name="ada", groups=["g"], home=str(home), timeout=None, began=0.0)
    if goes_on:
        with opened(arguments, "send", hold=hold) as session:
            assert session == "session"
    else:
        with pytest.raises(RegistrationRefused), opened(arguments, "receive", hold=hold):
            pass
    assert asked == (["ada", False] if goes_on else ["ada"])


def test_a_failure_inside_the_block_is_not_taken_for_a_refusal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(*_: object, address: str | bool, **__: object) -> AbstractContextManager[str]:
        asked.append(address)
        return nullcontext("session")

    monkeypatch.setattr(blocking, "connect", connect)
    arguments = Namespace(name="ada", groups=None, home=str(home), timeout=None, began=0.0)
    with pytest.raises(RegistrationRefused), opened(arguments, "send", hold="none"):
        raise RegistrationRefused("later", code="address_limit")
    assert asked == ["ada"]
