from __future__ import annotations

import os
from pathlib import Path

import pytest

from intercom.cli import foreign, serve
from intercom.cli.arguments import Parser
from intercom.cli.render import Output
from intercom.errors import ConfigError


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, dict[str, object], bool]]:
    """Collect what the broker would have been started with."""
    calls: list[tuple[Path, dict[str, object], bool]] = []

    def main(home: Path, *, overrides: dict[str, object], foreign: bool) -> int:
        calls.append((home, overrides, foreign))
        return 0

    import intercom.server.app

    monkeypatch.setattr(intercom.server.app, "main", main)
    return calls


def serve_with(*arguments: str) -> int:
    parser = Parser("serve", serve.USAGE, serve.DESCRIPTION)
    serve.configure(parser)
    return serve.run(parser.parse(arguments), Output(as_json=False))


def test_flags_are_the_settings(served: list[tuple[Path, dict[str, object], bool]], tmp_path: Path) -> None:
    serve_with("--home", str(tmp_path), "--idle-ms", "700", "--durability", "memory", "--watchdog", "false")
    assert served == [(tmp_path, {"idle_ms": 700, "durability": "memory", "watchdog": False}, False)]


@pytest.mark.parametrize(
    "wrong", [["--idle-ms", "soon"], ["--idle-ms", "1"], ["--durability", "maybe"], ["--flow-reconcile-ms", "249"]]
)
def test_a_value_that_is_none_is_refused_before_anything_happens(
    served: list[tuple[Path, dict[str, object], bool]], wrong: list[str]
) -> None:
    with pytest.raises(ConfigError, match=wrong[0]):
        serve_with(*wrong)
    assert served == []


def test_a_trailing_script_moves_the_home_to_where_its_client_looks(
    served: list[tuple[Path, dict[str, object], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 2.3; design section 7, Home."""
    monkeypatch.setenv("INTERCOM_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("ATOMIC_CODING_AGENT_DIR", str(tmp_path / "agent"))
    serve_with("/somewhere/broker.ts")
    assert served == [(tmp_path / "agent" / "intercom", {}, True)]


def test_an_explicit_home_is_kept_whatever_follows(
    served: list[tuple[Path, dict[str, object], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOMIC_CODING_AGENT_DIR", str(tmp_path / "agent"))
    serve_with("--home", str(tmp_path / "ours"), "/somewhere/broker.ts")
    assert served == [(tmp_path / "ours", {}, False)]


def test_a_linked_runtime_directory_leads_to_the_one_home(
    served: list[tuple[Path, dict[str, object], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design section 7, Home: the link is followed, so every program meets at one broker."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "agent").mkdir()
    os.symlink(tmp_path / "ours", tmp_path / "agent" / "intercom")
    monkeypatch.setenv("INTERCOM_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("ATOMIC_CODING_AGENT_DIR", str(tmp_path / "agent"))
    serve_with("/somewhere/broker.ts")
    assert served == [(tmp_path / "ours", {}, False)]


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"HOME": "/u"}, "/u/.atomic/agent/intercom"),
        ({"HOME": "/u", "PI_CODING_AGENT_DIR": "~/pi"}, "/u/pi/intercom"),
        ({"HOME": "/u", "PI_CODING_AGENT_DIR": "/p", "ATOMIC_CODING_AGENT_DIR": ""}, "/p/intercom"),
        ({"HOME": "/u", "PI_CODING_AGENT_DIR": "/p", "ATOMIC_CODING_AGENT_DIR": "/a"}, "/a/intercom"),
        ({"HOME": "/u", "ATOMIC_CODING_AGENT_DIR": "~"}, "/u/intercom"),
        ({"HOME": "", "USERPROFILE": "/profile"}, "/profile/.atomic/agent/intercom"),
    ],
)
def test_where_a_foreign_client_looks(environ: dict[str, str], directory: str) -> None:
    """Protocol 2.1."""
    assert foreign.foreign_directory(environ) == Path(directory)
