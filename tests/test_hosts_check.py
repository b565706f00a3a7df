"""Test what of ``scripts/hosts-check`` runs without a lab: that it is passed over, and how it judges files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.hosts.lab import VARIABLE
from scripts.hosts.main import _is_only_longer, main


def test_without_a_lab_it_is_passed_over(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert main([]) == 0
    assert capsys.readouterr().out == f"skipped: no host lab was named, by --lab or {VARIABLE}\n"


def test_without_npm_it_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--lab", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "skipped: npm is not here\n"


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        (b"a\nb\n", b"a\nb\nc\n", True),
        (b"a\nb\nx = 1  # hostlab\n", b"x = 2  # hostlab\na\nb\n", True),
        (b"a\nb\n", b"b\na\n", False),
        (b"a\nb\n", b"a\n", False),
        (b"a\n", b"a\n[mcp_servers.intercom]\n", False),
    ],
)
def test_a_file_the_host_wrote_to_meanwhile(before: bytes, after: bytes, holds: bool) -> None:
    assert _is_only_longer(before, after) is holds
