from __future__ import annotations

import os
import subprocess

import pytest

from intercom.cli.ending import Watched


@pytest.fixture(params=["descriptor", "number"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch with a descriptor of the process, and without as on other systems."""
    if request.param == "number":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.usefixtures("way")
def test_a_process_is_seen_to_end() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with Watched(process.pid) as watched:
        assert not watched.wait(0.05)
        process.communicate()
        assert watched.wait(10)
        assert watched.wait(10)


@pytest.mark.usefixtures("way")
def test_a_process_that_is_gone_already() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with Watched(process.pid) as watched:
        assert watched.wait(10)
