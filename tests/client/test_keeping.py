from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from intercom.client.keeping import AddressKeeper, home_trouble
from intercom.errors import HomeError
from intercom.limits import ADDRESS_SEEN_IDS
from intercom.paths import Paths


def keeper(home: Path, name: str = "ada", group: str = "default") -> AddressKeeper:
    return AddressKeeper(Paths(home), name, group)


def files(home: Path) -> list[Path]:
    return sorted((home / "identities" / "addresses").iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_kept_for_the_user_alone(home: Path) -> None:
    """Design section 7, Addresses: identities/, 0600."""
    assert keeper(home).token() is None
    assert not home.exists(), "looking makes nothing"
    keeper(home).keep_token("secret")
    assert keeper(home, "ADA").token() == "secret"
    assert keeper(home, "ada", "other").token() is None
    [file] = files(home)
    assert mode(file) == 0o600
    assert mode(home / "identities") == mode(file.parent) == 0o700
    assert json.loads(file.read_bytes()) == {"name": "ada", "group": "default", "token": "secret"}
    keeper(home).keep_token("newer")
    assert keeper(home).token() == "newer"


def test_a_token_and_its_name_are_on_disk_before_anybody_shows_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker keeps what it was shown, also when the power fails: who lost the token then would be locked out."""
    done = []
    sync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def note_link(draft: Path, file: Path) -> None:
        assert done == [draft]
        done.clear()
        link(draft, file)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    keeper(home).prepare()
    real = home.resolve()
    assert done == [real / "identities" / "addresses", real / "identities", real]


def test_a_token_is_made_once(home: Path) -> None:
    """Before the broker makes the address: whoever dies in between has its token, and all show the same."""
    made: list[str | None] = []

    def make() -> None:
        own = keeper(home)
        own.prepare()
        made.append(own.token())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert made[0] is not None
    assert len(made[0]) == 64
    [file] = files(home)
    assert mode(file) == 0o600
    keeper(home).prepare()
    assert keeper(home).token() == made[0]


def test_it_is_found_out_before_connecting_that_no_token_can_be_kept(home: Path) -> None:
    (home / "identities").mkdir(parents=True)
    (home / "identities" / "addresses").write_text("in the way")
    with pytest.raises(HomeError):
        keeper(home).prepare()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "rubbish", "empty", "number"])
def test_what_lies_in_the_place_of_a_token_is_not_followed(home: Path, kind: str) -> None:
    keeper(home).keep_token("secret")
    [file] = files(home)
    file.unlink()
    if kind == "link":
        target = home / "elsewhere"
        target.write_text(json.dumps({"token": "stolen"}))
        file.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.write_text({"rubbish": "{", "empty": json.dumps({"token": ""}), "number": "7"}[kind])
    with pytest.raises(HomeError):
        keeper(home).token()
    with pytest.raises(HomeError):
        keeper(home).prepare()


def test_messages_that_were_done_with_are_known_to_the_next_process(home: Path) -> None:
    first = keeper(home)
    first.prepare()
    first.note(["m1", "a\nb\udfff"])
    assert first.knows("m1")
    second = keeper(home)
    assert not second.knows("m1")
    second.refresh()
    assert second.knows("m1")
    assert second.knows("a\nb\udfff")
    assert not second.knows("m2")
    [file] = [path for path in files(home) if path.suffix == ".seen"]
    assert mode(file) == 0o600
    first.note(["m1"])
    assert len(file.read_bytes().splitlines()) == 2, "nothing is noted twice"


def test_the_file_is_bounded_and_keeps_the_newest(home: Path) -> None:
    writer = keeper(home)
    writer.prepare()
    for start in range(0, 5 * ADDRESS_SEEN_IDS, 100):
        writer.note([f"m{number}" for number in range(start, start + 100)])
    [file] = [path for path in files(home) if path.suffix == ".seen"]
    assert ADDRESS_SEEN_IDS <= len(file.read_bytes().splitlines()) <= 2 * ADDRESS_SEEN_IDS
    reader = keeper(home)
    reader.refresh()
    assert reader.knows(f"m{5 * ADDRESS_SEEN_IDS - 1}")
    assert not reader.knows("m0")


def test_several_processes_note_at_once_and_nothing_is_lost(home: Path) -> None:
    """Also while one of them puts a shorter file in the place of the other one."""
    keeper(home).prepare()
    count = ADDRESS_SEEN_IDS // 5
    keeper(home).note(f"old{number}" for number in range(2 * ADDRESS_SEEN_IDS - count))  # so it happens in the middle

    def write(name: str) -> None:
        writer = keeper(home)
        for number in range(count):
            writer.note([f"{name}{number}"])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcde"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = keeper(home)
    reader.refresh()
    [file] = [path for path in files(home) if path.suffix == ".seen"]
    lines = file.read_bytes().splitlines()
    assert {len(line) for line in lines} == {32}
    assert len(lines) < 2 * ADDRESS_SEEN_IDS, "it was made shorter"
    assert all(reader.knows(f"{name}{number}") for name in "abcde" for number in range(count))


@pytest.mark.parametrize("kind", ["torn", "pipe", "missing"])
def test_a_damaged_file_costs_no_more_than_a_copy(home: Path, kind: str) -> None:
    writer = keeper(home)
    writer.prepare()
    writer.note(["m1"])
    [file] = [path for path in files(home) if path.suffix == ".seen"]
    if kind == "torn":
        file.write_bytes(file.read_bytes() + b"abc")
    elif kind == "pipe":
        file.unlink()
        os.mkfifo(file)
    else:
        file.unlink()
    reader = keeper(home)
    reader.refresh()
    assert reader.knows("m1") is (kind == "torn")
    reader.note(["m2"])
    assert reader.knows("m2")


@pytest.mark.parametrize(
    ("number", "retry", "hint"),
    [
        (errno.ENOSPC, "after", "Free some space"),
        (errno.EDQUOT, "after", "Free some space"),
        (errno.EROFS, "never", "INTERCOM_HOME"),
        (errno.ENAMETOOLONG, "never", "another name"),
    ],
)
def test_what_is_said_of_a_file_that_cannot_be_used_helps(number: int, retry: str, hint: str) -> None:
    """F100: error texts are safe to follow; what is wrong with the disk no other name mends."""
    error = home_trouble(OSError(number, os.strerror(number)), Path("/home/file.json"))
    assert isinstance(error, HomeError)
    assert (error.retry, hint in error.hint, "/home/file.json" in error.reason) == (retry, True, True)
