from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from intercom.client import memberships
from intercom.client.memberships import change, remembered
from intercom.client.who import Identity
from intercom.errors import AccessDenied, HomeError
from intercom.paths import Paths
from tests.support.processes import OTHER_USER, in_child, needs_root

ME = Identity("name", "name\0me\ud800", "me", "the name")
OTHER = Identity("name", "name\0other", "other", "the name")
GUEST = Identity("guest", None, None, "nothing")


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths(home)


def files(paths: Paths) -> list[Path]:
    return sorted((paths.identities / "groups").iterdir())


def test_nothing_is_remembered_of_who_joined_nothing(paths: Paths) -> None:
    assert remembered(paths, ME) == remembered(paths, GUEST) == ()
    assert not paths.home.exists()


def test_groups_are_those_of_one_identity(paths: Paths) -> None:
    assert change(paths, ME, lambda present: (*present, "alpha")) == ("default", "alpha")
    assert change(paths, ME, lambda present: (*present, "beta")) == ("default", "alpha", "beta")
    assert remembered(paths, ME) == ("default", "alpha", "beta")
    assert remembered(paths, OTHER) == remembered(paths, GUEST) == ()


def test_who_is_back_in_default_leaves_no_file(paths: Paths) -> None:
    change(paths, ME, lambda _: ("alpha",))
    assert change(paths, ME, lambda _: ("default",)) == ("default",)
    assert files(paths) == []
    assert change(paths, ME, lambda present: present) == ("default",)


def test_files_are_for_the_user_alone(paths: Paths) -> None:
    """F108."""
    change(paths, ME, lambda _: ("alpha",))
    [file] = files(paths)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == stat.S_IMODE(paths.home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"groups": []}', b'{"groups": [1]}', b'{"groups": "a"}', b"\xff"]
)
def test_a_damaged_file_is_said_and_not_taken_for_no_group(paths: Paths, content: bytes) -> None:
    change(paths, ME, lambda _: ("alpha",))
    [file] = files(paths)
    file.write_bytes(content)
    with pytest.raises(HomeError, match="does not hold a list of groups") as caught:
        remembered(paths, ME)
    assert str(file) in caught.value.hint


@needs_root
def test_a_file_that_may_not_be_read(paths: Paths) -> None:
    change(paths, ME, lambda _: ("alpha",))
    paths.home.parent.chmod(0o755)
    for directory in (paths.home, paths.identities, paths.identities / "groups"):
        directory.chmod(0o755)

    def look() -> None:
        with pytest.raises(AccessDenied):
            remembered(paths, ME)

    in_child(look, user=OTHER_USER)


def test_two_that_join_at_once_both_have(paths: Paths) -> None:
    def join(group: str) -> None:
        change(paths, ME, lambda present: (*present, group))

    threads = [threading.Thread(target=join, args=(f"g{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert set(remembered(paths, ME)) == {"default", *(f"g{number}" for number in range(8))}


def test_the_number_of_files_is_bounded(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "REMEMBERED_IDENTITIES", 3)
    for number in range(5):
        change(paths, Identity("terminal", f"terminal\0{number}", None, ""), lambda _: ("alpha",))
    assert len(files(paths)) == 3
    assert remembered(paths, Identity("terminal", "terminal\0004", None, "")) == ("alpha",)
