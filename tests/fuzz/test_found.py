"""Keep what fuzzers found, each fault as a plain test of its kind: nested too deep for the stack is damaged as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intercom.client.failed_start import noted
from intercom.client.journalfile import SUFFIX, JournalFile, damaged
from intercom.client.keeping import AddressKeeper, digest, key_of
from intercom.client.report_files import ReportFiles
from intercom.core.records import FlowRecord
from intercom.errors import HomeError
from intercom.limits import NESTING
from intercom.paths import Paths, make_private_directory, prepare_home
from intercom.store.head import read_head
from intercom.store.history import record_from
from intercom.wire.codec import decode_answer, decode_request
from tests.support.raw import INFO
from tests.support.wire import SHOWN

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def paths(short_path: Path) -> Paths:
    """Give a home with a place for what addresses keep."""
    paths = Paths(short_path / "home")
    prepare_home(paths)
    make_private_directory(paths.identities)
    make_private_directory(paths.identities / "addresses")
    return paths


def put(path: Path, content: bytes) -> None:
    """Write a file as a client would have."""
    path.write_bytes(content)
    path.chmod(0o600)


def test_a_token_file_that_is_nested_too_deep_is_damaged(paths: Paths) -> None:
    keeper = AddressKeeper(paths, "amy", "default")
    put(paths.identities / "addresses" / f"{key_of('amy', 'default')}.json", DEEP)
    with pytest.raises(HomeError, match="is damaged"):
        keeper.prepare()


def test_a_journal_whose_line_is_nested_too_deep_is_damaged(paths: Paths) -> None:
    file = paths.identities / "addresses" / f"k{SUFFIX}"
    put(file, b'{"e":1,"id":"e-1","at":1,"b":' + DEEP + b"}\n")
    journal = JournalFile(paths, "k", str)
    with pytest.raises(HomeError, match="is damaged in line 1"):
        journal.open(1)
    assert [error.code for error in damaged(paths)] == ["identity_damaged"]


def test_a_journal_that_is_no_ordinary_file_is_told_by_the_doctor(paths: Paths) -> None:
    (paths.identities / "addresses" / f"k{SUFFIX}").symlink_to("/dev/zero")
    [error] = damaged(paths)
    assert "cannot be used" in error.reason


def test_a_report_that_is_nested_too_deep_is_left_out(paths: Paths) -> None:
    place = paths.identities / "reports" / digest("amy\0default")
    place.mkdir(parents=True)
    put(place / "x.report", DEEP)
    assert ReportFiles(paths, "amy", "default").load() == []


def test_a_head_file_that_is_nested_too_deep_says_nothing(paths: Paths) -> None:
    put(paths.head, b"[" * 4_000)
    assert read_head(paths.head) is None


def test_a_note_of_a_failed_start_that_is_nested_too_deep_says_nothing(paths: Paths) -> None:
    put(paths.start_failure, DEEP)
    assert noted(paths, None) is None


def test_a_row_that_is_nested_too_deep_is_damaged() -> None:
    row = [DEEP if name == "steps" else None for name in FlowRecord.__struct_fields__]
    assert record_from(FlowRecord, tuple(row)) is None


def test_what_is_nested_as_deep_as_allowed_can_be_read_inside_an_answer() -> None:
    """P 1.3: the one who asks for it loses no connection over what somebody else was allowed to write."""
    deepest = "[" * (NESTING - 2) + "]" * (NESTING - 2)
    request = json.dumps({"type": "register", "session": {**INFO, "x": 0}}).replace('"x": 0', f'"x": {deepest}')
    assert type(decode_request(request.encode())).__name__ == "Register"
    told = json.dumps({"type": "sessions", "requestId": "r", "sessions": [{**SHOWN, "x": 0}]})
    answer = told.replace('"x": 0', f'"x": {deepest}')
    assert type(decode_answer(answer.encode())).__name__ == "Sessions"


def test_the_texts_are_nested_too_deep_for_the_parsers() -> None:
    with pytest.raises(RecursionError):
        json.loads(DEEP)
