"""What a session tells of itself, and which names and groups our own client does not use."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from intercom.client import commands
from intercom.client.profile import Profile, checked_group, checked_name
from intercom.errors import UsageError
from tests.support.client import WALL


def registered(**arguments: Any) -> dict[str, Any]:
    frame: dict[str, Any] = msgspec.to_builtins(Profile(**arguments).register(WALL))
    return frame


def test_the_register_frame() -> None:
    """Protocol 4.1: a newest client sends returnAddress and acknowledgesReceipt."""
    frame = registered(name="ada", groups=["a", " b "], group="home", model="m", status="busy", return_address="ret")
    session = frame.pop("session")
    assert frame.pop("supervisorOwnerToken") not in ("", "ret"), "a secret of its own (protocol 6.6)"
    assert frame == {
        "type": "register",
        "registrationGroup": "home",
        "returnAddress": "ret",
        "acknowledgesReceipt": True,
    }
    assert session.pop("startedAt") > 0
    assert session == {
        "name": "ada",
        "cwd": os.getcwd(),
        "model": "m",
        "pid": os.getpid(),
        "lastActivity": WALL,
        "group": "home",
        "groups": ["a", "b", "home"],
        "recipientPurpose": "agent",
        "status": "busy",
    }


def test_without_a_group_it_is_in_default() -> None:
    """Protocol 6.3: without any group a session is in default."""
    profile = Profile()
    assert (profile.home_group, profile.groups) == ("default", ("default",))


def test_the_first_of_several_groups_is_home() -> None:
    """Protocol 4.1: the registration group defaults to the first membership."""
    profile = Profile(groups=["a", "b", "a"])
    assert (profile.home_group, profile.groups) == ("a", ("a", "b"))


def test_every_session_has_a_return_address_of_its_own() -> None:
    """Protocol 6.1: the return address is a secret, stable identity of the session."""
    assert registered()["returnAddress"] != registered()["returnAddress"]


def test_a_wish_for_an_id_is_sent() -> None:
    assert registered(session_id="former")["preferredSessionId"] == "former"


def test_undecodable_bytes_are_replaced() -> None:
    assert registered(cwd="/\udcff")["session"]["cwd"] == "/\ufffd"


@pytest.mark.parametrize(
    "arguments",
    [
        {"purpose": "both"},
        {"return_address": ""},
        {"groups": "several"},
        {"groups": ["a", 3]},
        {"group": " "},
        {"name": 3},
        {"model": None},
    ],
)
def test_what_can_never_work_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Profile(**arguments)


@pytest.mark.parametrize(
    "name",
    [
        "broker", "Self", "ALL", "*", "default", "system", "me", "@ada", "../x", "/x", "workflow:r/s",
        "b1111111-1111-4111-8111-111111111111", "deadbeef", "", "  ", "\u200b", "bro\u200bker", "\u202eall", "x" * 129,
        "a\nb", "a\x1b[2Jb", "a\x7f", "a\u2028b", "a\u202eb", "a\x00b",
    ],
)  # fmt: skip
def test_names_that_would_mean_something_else_are_refused(name: str) -> None:
    """F53: reserved words, ids and path-like strings, in any case and with invisible characters."""
    with pytest.raises(UsageError):
        checked_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "ada",
        " ada ",
        "feature/login",
        "x" * 128,
        "déjà vu",
        "weaver-2",
        "beef",
        "a\u00a0b",
        "\U0001f469\u200d\U0001f4bb",
    ],
)
def test_ordinary_names_are_kept_trimmed(name: str) -> None:
    assert checked_name(name) == name.strip()


@pytest.mark.parametrize("group", ["true", "AUTO", "", "  "])
def test_reserved_and_blank_groups_are_refused(group: str) -> None:
    """Protocol 6.3: true and auto are reserved in any letter case."""
    with pytest.raises(UsageError):
        checked_group(group)


def test_default_is_an_ordinary_group() -> None:
    assert checked_group(" default ") == "default"


def test_acknowledged_memberships_are_taken_over() -> None:
    """Protocol 4.7: if the legacy group was left, the first remaining membership becomes it."""
    profile = Profile(group="a")
    assert profile.regroup(["b", "c"], WALL) == ("b", "c")
    assert (profile.group, profile.home_group) == ("b", "a")
    session = msgspec.to_builtins(profile.register(WALL))["session"]
    assert (session["group"], session["groups"]) == ("b", ["b", "c"])


def test_a_working_directory_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """F17: a session outlives its directory."""

    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert Profile().cwd == "/"


def test_a_child_shows_its_capability() -> None:
    """Protocol 4.1: both members are strings; the broker goes by the capability."""
    profile = Profile("reviewer", supervisor="n.mac")
    claim = msgspec.to_builtins(profile.register(WALL))["supervisor"]
    assert claim == {"capability": "n.mac", "supervisorSessionId": ""}
    profile.name, profile.supervisor_id = "other", "b1"
    again = msgspec.to_builtins(profile.register(WALL))
    assert again["supervisor"] == {"capability": "n.mac", "supervisorSessionId": "b1"}
    assert again["session"]["name"] == "reviewer", "the capability is for this name"
    without = msgspec.to_builtins(profile.register(WALL, claims=False))
    assert "supervisor" not in without
    assert without["session"]["name"] == "other"


@pytest.mark.parametrize("what", ["status", "model"])
def test_what_everybody_is_told_is_not_long(what: str) -> None:
    """A register frame above the limit of the broker would be refused for ever (protocol 1.5)."""
    longest: dict[str, Any] = {what: "\N{GRINNING FACE}" * 4_096}
    assert registered(**longest)["session"][what] == longest[what]
    with pytest.raises(UsageError, match="at most 4096"):
        Profile(**{what: longest[what] + "x"})
    with pytest.raises(UsageError, match="at most 4096"):
        commands.set_presence(Profile(), now=0, wall=WALL, **{what: longest[what] + "x"})


def test_a_control_session_has_no_children() -> None:
    assert "supervisorOwnerToken" not in registered(purpose="control")


@pytest.mark.parametrize("arguments", [{"supervisor": "n.mac"}, {"name": "ada", "supervisor": ""}])
def test_a_supervisor_that_cannot_be_claimed(arguments: dict[str, Any]) -> None:
    """Protocol 4.1: the child must have a non-empty name."""
    with pytest.raises(UsageError):
        Profile(**arguments)


@pytest.mark.parametrize(
    "members", [{"groups": [f"g{number}" for number in range(65)]}, {"group": "g" * 4_097}, {"cwd": "/" * 4_097}]
)
def test_what_a_broker_would_break_off_for_is_refused_before(members: dict[str, Any]) -> None:
    """It would be tried again and again, and told as a broken connection."""
    with pytest.raises(UsageError):
        Profile("x", **members)
