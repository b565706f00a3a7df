"""What is entered into Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

from intercom.hosts.claude import parts
from intercom.hosts.facts import Wish


def test_no_two_handlers_of_a_group_have_the_same_program(tmp_path: Path) -> None:
    """Claude Code 2.1.332 runs only the first of them, whatever their arguments: an idle session was never woken."""
    wish = Wish({"HOME": str(tmp_path)}, lambda *words: ("/bin/python", ["-m", "intercom", *words]))
    [hooks] = [part for part in parts(wish) if part.path.name == "hooks.json"]
    groups = json.loads(hooks.text)["hooks"]
    for group in (group for event in groups.values() for group in event):
        programs = [handler["command"] for handler in group["hooks"]]
        assert len(programs) == len(set(programs))
    assert [handler["args"][-1] for group in groups["Stop"] for handler in group["hooks"]] == ["Stop", "Rewake"]
    [rewake] = [handler for group in groups["Stop"] for handler in group["hooks"] if handler.get("asyncRewake")]
    assert rewake["async"] is True
