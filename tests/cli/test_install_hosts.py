"""Install into hosts and undo it, with the real command, in files as people have them."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from intercom.hosts import files
from intercom.hosts.facts import Wish, facts
from intercom.hosts.files import MADE
from intercom.hosts.installing import install_steps
from tests.cli.test_install import tree
from tests.support.commands import Shell

HOSTS = ("claude", "codex", "gemini", "opencode")
SETTINGS = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
}
"""The JSON file of a host that is edited."""
PLAIN = {
    "two spaces": b'{\n  "theme": "dark"\n}\n',
    "odd indentation": b'{\n     "theme": "dark",\n     "hooks": {\n          "Stop": [\n               ]\n     }\n}',
    "tabs": b'{\n\t"hooks": {\n\t\t"SessionStart": [\n\t\t\t{"hooks": []}\n\t\t]\n\t},\n\t"mcp": {}\n}\n',
    "one line": b'{"permissions":{"allow":["Bash"]},"mcpServers":{"x":{"command":"y"}}}',
    "crlf": b'{\r\n  "theme": "dark"\r\n}\r\n',
    "empty object": b"{}",
    "empty object over two lines": b"{\n}\n",
    "empty": b"",
    "blank": b" \n\n",
    "other alphabets": '{\n  "名": "é \\u00e9"\n}\n'.encode(),
}
COMMENTS = b'// mine\n{\n  // theme\n  "theme": "dark", /* yes */\n  "mcpServers": {} // none\n}\n'
TRAILING = b'{\n  "theme": "dark",\n  "mcp": {\n    "x": {"type": "local", "command": ["y"],},\n  },\n}\n'
BOM = b'\xef\xbb\xbf{\n  "theme": "dark"\n}\n'
TOLERATED = {
    "claude": {"bom": BOM},
    "codex": {},
    "gemini": {"comments": COMMENTS},
    "opencode": {"comments": COMMENTS, "trailing commas": TRAILING, "bom": BOM},
}
"""What a host takes beside plain JSON."""
STRANGE = {"comments": COMMENTS, "trailing commas": TRAILING, "bom": BOM}
CORPUS = [
    pytest.param(host, content, id=f"{host}-{name}")
    for host in HOSTS
    for name, content in {**PLAIN, **TOLERATED[host]}.items()
]
REFUSED = [
    pytest.param(host, content, id=f"{host}-{name}")
    for host in HOSTS
    for name, content in STRANGE.items()
    if name not in TOLERATED[host]
]
TOML = {
    "comments": b'# mine\nmodel = "x"   # odd\n\n[mcp_servers.other]\ncommand = "y"\n',
    "crlf": b'model = "x"\r\n[tools]\r\nweb = true\r\n',
    "bom": b'\xef\xbb\xbfmodel = "x"\n',
    "no last line end": b'model = "x"',
    "empty": b"",
}


@pytest.fixture
def user(home: Path) -> Path:
    """Give the directory of the user."""
    return home.parent


def put(file: Path, content: bytes, mode: int = 0o600) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)
    return file


def install(shell: Shell, host: str, *options: str) -> dict[str, Any]:
    done = shell.run("install", host, "--approve", "--json", *options)
    assert done.status == 0, done
    return done.document


def handlers(groups: list[Any]) -> list[Any]:
    return [handler for group in groups for handler in group["hooks"]]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_was_never_here(shell: Shell, user: Path, host: str) -> None:
    document = install(shell, host)
    assert (document["host"], document["changed"]) == (host, True)
    assert {step["action"] for step in document["steps"]} == {"make", "write"}
    again = shell.run("install", host, "--approve")
    assert (again.status, "nothing to do" in again.text) == (0, True)
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == {}
    assert "nothing to undo" in shell.run("uninstall", host).text


@pytest.mark.parametrize(("host", "content"), CORPUS)
def test_round_trip(shell: Shell, user: Path, host: str, content: bytes) -> None:
    """Byte for byte, with its mode; and everything else in the file stays while it is installed."""
    file = put(user / SETTINGS[host], content, 0o640)
    before = tree(user)
    install(shell, host)
    edited = file.read_bytes()
    assert edited != content
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.with_name(file.name + ".before-intercom").read_bytes() == content
    assert b"\n" not in edited.replace(b"\r\n", b"") or b"\r\n" not in content
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_round_trip_of_toml(shell: Shell, user: Path, content: bytes) -> None:
    file = put(user / ".codex" / "config.toml", content)
    before = tree(user)
    install(shell, "codex")
    assert file.read_bytes().startswith(content)
    entry = tomllib.loads(file.read_text(encoding="utf-8-sig"))["mcp_servers"]["intercom"]
    assert entry["command"] == sys.executable
    assert entry["args"][-3:] == ["mcp", "--host", "codex"]
    assert entry["default_tools_approval_mode"] == "approve"
    assert entry["env_vars"] == ["INTERCOM_HOME"]
    assert shell.run("uninstall", "codex").status == 0
    assert tree(user) == before


@pytest.mark.parametrize(("host", "content"), REFUSED)
def test_a_file_the_host_could_not_read_is_left(shell: Shell, user: Path, host: str, content: bytes) -> None:
    put(user / SETTINGS[host], content)
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert str(user / SETTINGS[host]) in done.document["reason"]
    assert "which the host does not take" in done.document["reason"]
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"{", "was left as it is"), (b'{"a": "\xff"}', "not UTF-8"), (b"[]", "not an object"), (b"7", "not an object")],
)
def test_a_broken_file_is_left(shell: Shell, user: Path, host: str, content: bytes, reason: str) -> None:
    put(user / SETTINGS[host], content)
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert reason in done.document["reason"]
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_read_only_file_is_left(shell: Shell, user: Path, host: str) -> None:
    put(user / SETTINGS[host], PLAIN["two spaces"], 0o444)
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (7, "home")
    assert "is read-only; it was left as it is" in done.document["reason"]
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_directory_in_the_place_of_a_file_is_left(shell: Shell, user: Path, host: str) -> None:
    (user / SETTINGS[host]).mkdir(parents=True)
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert "is a directory" in done.document["reason"]
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_file_in_the_place_of_a_directory_is_left(shell: Shell, user: Path, host: str) -> None:
    put((user / SETTINGS[host]).parent, b"a file")
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (7, "home")
    assert "is not a directory" in done.document["reason"]
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_link_stays_a_link_and_what_it_leads_to_is_edited(shell: Shell, user: Path, host: str) -> None:
    """As people have them who keep their settings in a repository."""
    real = put(user / "dotfiles" / host, PLAIN["two spaces"])
    link = user / SETTINGS[host]
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    before = tree(user)
    install(shell, host)
    assert link.is_symlink()
    assert "intercom" in real.read_text()
    assert os.listdir(real.parent) == [host]
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before


def test_a_link_that_leads_nowhere(shell: Shell, user: Path) -> None:
    link = user / SETTINGS["gemini"]
    link.parent.mkdir(parents=True)
    link.symlink_to(user / "dotfiles" / "later.json")
    before = tree(user)
    install(shell, "gemini")
    assert "intercom" in (user / "dotfiles" / "later.json").read_text()
    shell.run("uninstall", "gemini")
    assert tree(user) == before


@pytest.mark.parametrize("host", ["codex", "gemini", "opencode"])
def test_what_was_changed_since_stays(shell: Shell, user: Path, host: str) -> None:
    """Only entries of ours go; what was empty before stays, what was made with them goes."""
    file = put(user / SETTINGS[host], b'{\n  "hooks": {},\n  "theme": "dark"\n}\n')
    install(shell, host)
    file.write_text(file.read_text().replace('"dark"', '"light",\n  "new": [1]'))
    shell.run("uninstall", host)
    assert file.read_text() == '{\n  "hooks": {},\n  "theme": "light",\n  "new": [1]\n}\n'
    assert sorted(os.listdir(file.parent)) == [file.name]


def test_a_file_that_was_made_and_changed_since_stays(shell: Shell, user: Path) -> None:
    install(shell, "gemini")
    file = user / SETTINGS["gemini"]
    file.write_text(json.dumps({**json.loads(file.read_text()), "theme": "light"}))
    shell.run("uninstall", "gemini")
    assert json.loads(file.read_text()) == {"theme": "light"}


@pytest.mark.parametrize("host", ["gemini", "opencode"])
def test_an_entry_of_somebody_else_under_our_name_is_left(shell: Shell, user: Path, host: str) -> None:
    key = {"gemini": "mcpServers", "opencode": "mcp"}[host]
    put(user / SETTINGS[host], json.dumps({key: {"intercom": {"command": "other"}}}).encode())
    before = tree(user)
    done = shell.run("install", host, "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert f"{key}.intercom is there already and is not ours" in done.document["reason"]
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before


def test_a_table_of_somebody_else_under_our_name_is_left(shell: Shell, user: Path) -> None:
    put(user / ".codex" / "config.toml", b'[mcp_servers.intercom]\ncommand = "other"\n')
    before = tree(user)
    assert "not ours" in shell.run("install", "codex", "--json").document["reason"]
    assert shell.run("uninstall", "codex").status == 0
    assert tree(user) == before


def test_a_skill_of_somebody_else_under_our_name_is_left(shell: Shell, user: Path) -> None:
    put(user / ".codex" / "skills" / "intercom" / "SKILL.md", b"---\nname: phone\n---\n")
    before = tree(user)
    assert "a file of somebody else" in shell.run("install", "codex", "--json").document["reason"]
    assert shell.run("uninstall", "codex").status == 0
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
def test_an_older_version_is_replaced_and_undone(shell: Shell, user: Path, host: str) -> None:
    """As after a new environment: other paths, other arguments."""
    file = put(user / SETTINGS[host], PLAIN["two spaces"])
    before = tree(user)
    install(shell, host, "--home", str(user / "elsewhere"))
    first = tree(user)
    document = install(shell, host)
    assert document["changed"]
    assert tree(user) != first
    assert str(user / "elsewhere") not in file.read_text()
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("copy", [b"mine", PLAIN["two spaces"]], ids=["other", "the same"])
def test_a_file_with_the_name_of_the_copy_is_left(shell: Shell, user: Path, host: str, copy: bytes) -> None:
    """A person may have made a copy of that name; it is neither written over nor taken away."""
    file = put(user / SETTINGS[host], PLAIN["two spaces"])
    theirs = put(file.with_name(file.name + ".before-intercom"), copy)
    before = tree(user)
    done = shell.run("install", host, "--approve", "--json")
    assert (done.status, done.document["code"]) == (7, "home")
    assert str(theirs) in done.document["reason"]
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before
    theirs.rename(user / "moved")
    install(shell, host)
    assert shell.run("uninstall", host).status == 0
    assert file.read_bytes() == PLAIN["two spaces"]
    assert (user / "moved").read_bytes() == copy


def test_a_file_with_the_name_of_a_copy_that_is_not_needed_is_left(shell: Shell, user: Path) -> None:
    put(user / ".gemini" / "settings.json.before-intercom", b"mine")
    before = tree(user)
    assert shell.run("install", "gemini", "--json").document["code"] == "home"
    assert tree(user) == before


def test_a_copy_is_left_where_the_person_took_our_entries_out(shell: Shell, user: Path) -> None:
    """What it was before may still be wanted; and an installation names it."""
    file = put(user / SETTINGS["gemini"], PLAIN["two spaces"])
    install(shell, "gemini")
    file.write_bytes(b"{}")
    assert shell.run("uninstall", "gemini").status == 0
    assert file.read_bytes() == b"{}"
    copy = file.with_name(file.name + ".before-intercom")
    assert copy.read_bytes() == PLAIN["two spaces"]
    assert str(copy) in shell.run("install", "gemini", "--json").document["reason"]


def test_a_copy_goes_when_the_file_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / ".gemini" / "settings.json", PLAIN["two spaces"])
    wish = Wish({"HOME": str(tmp_path)}, lambda *words: ("/intercom", [*words]))
    copy, edit, *_ = install_steps(facts("gemini"), wish)
    copy.do()
    assert files.kept(file).exists()

    def is_full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", is_full)
        with pytest.raises(OSError, match="No space"):
            edit.do()
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("content", [COMMENTS, b"{", b'{"a": "\xff"}', b"[]", b'{"// intercom": 1,}', None])
def test_settings_that_hold_nothing_of_ours_keep_nothing_installed(
    shell: Shell, user: Path, content: bytes | None
) -> None:
    """The plugin is a folder of its own: install, list and uninstall are of one mind, however broken the settings."""
    file = user / SETTINGS["claude"]
    if content is None:
        file.mkdir(parents=True)
    else:
        put(file, content)
    before = tree(user)
    assert shell.run("install", "claude").status == 0
    assert is_listed(shell, "claude") == "yes"
    done = shell.run("uninstall", "claude")
    assert (done.status, done.errors) == (0, "")
    assert is_listed(shell, "claude") == "no"
    assert tree(user) == before


def test_settings_that_hold_something_of_ours_and_are_broken_are_named(shell: Shell, user: Path) -> None:
    install(shell, "claude")
    file = user / SETTINGS["claude"]
    file.write_text("// mine\n" + file.read_text())
    before = tree(user)
    done = shell.run("uninstall", "claude", "--json")
    assert (done.status, done.document["code"]) == (2, "config")
    assert str(file) in done.document["reason"]
    assert is_listed(shell, "claude") == "yes"
    assert tree(user) == before


def is_listed(shell: Shell, host: str) -> str:
    hosts = shell.run("install", "--list", "--json").document["hosts"]
    return next(str(each["installed"]) for each in hosts if each["host"] == host)


@pytest.mark.parametrize("host", HOSTS)
def test_empty_directories_that_were_there_stay(shell: Shell, user: Path, host: str) -> None:
    """Whether a directory was made is marked in it, and not taken from its being empty."""
    for part in facts(host).parts(Wish({"HOME": str(user)}, lambda *words: ("/intercom", [*words]))):
        part.path.parent.mkdir(parents=True, exist_ok=True)
    before = tree(user)
    install(shell, host)
    assert shell.run("uninstall", host).status == 0
    assert tree(user) == before


def test_the_empty_directory_of_a_named_file_stays(shell: Shell, user: Path) -> None:
    (user / "client").mkdir()
    before = tree(user)
    assert shell.run("install", "mcp", "--file", str(user / "client" / "mcp.json")).status == 0
    assert shell.run("uninstall", "mcp", "--file", str(user / "client" / "mcp.json")).status == 0
    assert tree(user) == before


def test_a_directory_that_was_made_stays_when_something_else_is_in_it(shell: Shell, user: Path) -> None:
    install(shell, "gemini")
    put(user / ".gemini" / "skills" / "other" / "SKILL.md", b"mine")
    shell.run("uninstall", "gemini")
    assert [path.name for path in sorted(user.rglob("*"))] == [".gemini", "skills", "other", "SKILL.md"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_shows_what_new_files_will_hold(shell: Shell, user: Path, host: str) -> None:
    steps = shell.run("install", host, "--approve", "--dry-run", "--json").document["steps"]
    assert all("+" in step["change"] for step in steps if step["action"] == "write")
    assert {step["action"] for step in steps} == {"make", "write"}
    assert tree(user) == {}


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_shows_the_steps_with_their_changes_and_does_nothing(shell: Shell, user: Path, host: str) -> None:
    put(user / SETTINGS[host], PLAIN["two spaces"])
    before = tree(user)
    shown = shell.run("install", host, "--approve", "--dry-run", "--json").document
    assert (shown["changed"], shown["dryRun"]) == (False, True)
    [edit] = [step for step in shown["steps"] if step["action"] == "edit"]
    assert any(line.startswith("+") and "intercom" in line for line in edit["change"].splitlines())
    assert "would edit" in shell.run("install", host, "--approve", "--dry-run").text
    assert tree(user) == before
    install(shell, host)
    installed = tree(user)
    assert shell.run("uninstall", host, "--dry-run", "--json").document["steps"] != []
    assert tree(user) == installed


def test_what_is_entered_into_claude_code(shell: Shell, user: Path) -> None:
    """One folder; nothing else without --approve."""
    shell.run("install", "claude")
    folder = user / ".claude" / "skills" / "intercom"
    assert sorted(os.listdir(user / ".claude")) == [MADE, "skills"]
    plugin = json.loads((folder / ".claude-plugin" / "plugin.json").read_text())
    [monitor] = plugin["experimental"]["monitors"]
    assert monitor["command"].endswith(" mcp --bell --host claude")
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["intercom"]
    assert server["args"][-3:] == ["mcp", "--host", "claude"]
    hooks = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]
    for event, groups in hooks.items():
        for handler in handlers(groups):
            assert os.path.isabs(handler["command"])
            assert handler["args"][-3:-1] == ["hook", "claude"]
            assert handler["args"][-1] == event or handler.get("asyncRewake") is True
            assert event == "Stop" or handler["timeout"] <= 5
    assert (folder / "skills" / "intercom" / "SKILL.md").read_text().startswith("---\nname: intercom\n")


@pytest.mark.parametrize(("host", "unit"), [("codex", 1), ("gemini", 1000)])
def test_what_is_entered_as_hooks(shell: Shell, user: Path, host: str, unit: int) -> None:
    put(user / SETTINGS[host], b'{"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": "mine"}]}]}}')
    install(shell, host)
    hooks = json.loads((user / SETTINGS[host]).read_text())["hooks"]
    assert handlers(hooks["SessionEnd"])[0]["command"] == "mine"
    for event, groups in hooks.items():
        ours = handlers(groups)[-1]
        assert ours["command"].endswith(f"hook {host} {event}")
        assert ours["timeout"] in (3 * unit, 5 * unit)


def test_a_generic_host(shell: Shell, user: Path) -> None:
    file = put(user / "client" / "mcp.json", b'{\n    "mcpServers": {\n        "x": {"command": "y"}\n    }\n}')
    before = tree(user)
    done = shell.run("install", "mcp", "--file", str(file), "--json")
    assert done.status == 0
    entry = json.loads(file.read_text())["mcpServers"]["intercom"]
    assert (entry["command"], entry["args"][-1]) == (sys.executable, "mcp")
    assert shell.run("uninstall", "mcp", "--file", str(file)).status == 0
    assert tree(user) == before


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("install",), "which host"),
        (("install", "emacs"), "invalid choice"),
        (("install", "mcp"), "--file"),
        (("install", "claude", "--file", "x"), "--file goes with mcp"),
        (("uninstall",), "which host"),
    ],
)
def test_called_wrongly(shell: Shell, arguments: tuple[str, ...], hint: str) -> None:
    done = shell.run(*arguments, "--json")
    assert (done.status, done.document["code"]) == (2, "usage")
    assert hint in f"{done.document['reason']} {done.document.get('hint')}"


def test_the_list(shell: Shell, user: Path) -> None:
    def listed() -> dict[str, tuple[bool, str]]:
        hosts = shell.run("install", "--list", "--json", env={"PATH": ""}).document["hosts"]
        return {each["host"]: (each["found"], each["installed"]) for each in hosts}

    assert listed() == dict.fromkeys(("atomic", "claude", "codex", "gemini", "opencode", "pi"), (False, "no"))
    (user / ".gemini").mkdir()
    assert listed()["gemini"] == (True, "no")
    for host in ("gemini", "claude", "pi"):
        assert shell.run("install", host).status == 0
    found = listed()
    assert found["gemini"] == found["claude"] == found["pi"] == (True, "yes")
    (user / ".gemini" / "skills" / "intercom" / "SKILL.md").unlink()
    put(user / SETTINGS["opencode"], b"{")
    assert listed()["gemini"] == (True, "partly")
    text = shell.run("install", "--list").text
    assert "was left as it is" in text
    assert "partly" in text


def test_variables_that_move_a_hosts_directory(shell: Shell, user: Path) -> None:
    for host, variable in (("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME"), ("opencode", "XDG_CONFIG_HOME")):
        place = user / f"moved-{host}"
        assert shell.run("install", host, env={variable: str(place)}).status == 0
        assert any(place.rglob("SKILL.md"))
        assert shell.run("uninstall", host, env={variable: str(place)}).status == 0
        assert not place.exists()


def test_the_skill(shell: Shell) -> None:
    assert shell.run("skill", "--print").text == shell.run("skill").text
    assert shell.run("skill").text.startswith("---\nname: intercom\n")
    paragraph = shell.run("skill", "--paragraph").text
    assert paragraph.startswith("<!-- intercom begin -->\n")
    assert paragraph.endswith("<!-- intercom end -->\n")
    assert len(paragraph) < 700
    assert shell.run("skill", "--json").document["text"].startswith("---")
