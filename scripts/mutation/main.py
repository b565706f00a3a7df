"""Let mutmut change a module of the core in small ways, and name the changes that no test of the core notices.

What is known to change no behaviour is listed in ``equivalent.toml`` beside this file, each with its reason. The run
fails for a change that survives and is not listed, and for a listed one that does not survive any more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
PLACE = TOP / ".venv" / "cache" / "mutation"
LISTED = Path(__file__).with_name("equivalent.toml")
COPIED = ("intercom", "tests", "scripts", "README.md", "LICENSE", "pyproject.toml")
DEFAULT = "intercom/core/delivery.py"
MARK = "__mutmut_"
KILLED = 1
"""Exit status of tests of which one failed."""

SETTINGS = """
[tool.mutmut]
source_paths = ["intercom"]
only_mutate = [{module}]
also_copy = ["README.md", "LICENSE", "scripts"]
pytest_add_cli_args = ["-p", "no:xdist", "-m", "not hypothesis"]
pytest_add_cli_args_test_selection = {tests}
"""

Change = tuple[str, str, str]
"""The function, the line that is changed, and what it becomes."""


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every change is noticed by a test, or is known to change nothing."""
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("module", nargs="?", default=DEFAULT, help=f"a file of the core ({DEFAULT})")
    parser.add_argument("--tests", nargs="+", default=["tests/core"], help="which tests are to notice (tests/core)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="how many at a time")
    options = parser.parse_args(arguments)
    work = _lay_out(options.module, options.tests)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(options.processes)]
    status = subprocess.run(command, cwd=work, check=False).returncode
    if status:
        print(f"mutmut could not do it; {work} is what it worked on", file=sys.stderr)
        return status
    found = set(survivors(work / "mutants" / options.module))
    known = {(each["function"], each["line"], each["becomes"]) for each in _listed(options.module)}
    for title, changes in (("No test notices:", found - known), ("Listed, but noticed by now:", known - found)):
        if changes:
            print(title)
        for function, line, becomes in sorted(changes):
            print(f"  {function}\n    - {line}\n    + {becomes}")
    print(f"{options.module}: {len(found)} changes survive, {len(found & known)} of them are known to change nothing")
    return int(found != known)


def _lay_out(module: str, tests: Iterable[str]) -> Path:
    work = PLACE / Path(module).stem
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in COPIED:
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, work / name)
    settings = SETTINGS.format(module=json.dumps(module), tests=json.dumps(list(tests)))
    with (work / "pyproject.toml").open("a") as project:
        project.write(settings)
    return work


def _listed(module: str) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = tomllib.loads(LISTED.read_text()).get(module, [])
    return listed


def survivors(mutated: Path) -> list[Change]:
    """Return what no test noticed in a file that mutmut has written with all its variants of every function."""
    statuses: dict[str, int | None] = json.loads(mutated.with_name(f"{mutated.name}.meta").read_text())[
        "exit_code_by_key"
    ]
    bodies = _bodies(mutated.read_text())
    found = []
    for key, status in statuses.items():
        if status != KILLED:
            name = key.rpartition(".")[2]
            function = name.partition(MARK)[0]
            change = _difference(bodies[f"{function}{MARK}orig"], bodies[name])
            found.append((function.rpartition("ǁ")[2].removeprefix("x_"), *change))
    return found


def _bodies(text: str) -> dict[str, list[str]]:
    """Return the lines of every variant, by its name; they name the function only."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] | None = None
    indentation = 0
    for line in text.splitlines():
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if stripped.startswith("def ") and MARK in stripped:
            name, _, rest = stripped.removeprefix("def ").partition("(")
            lines = bodies[name] = [f"def {name.partition(MARK)[0]}({rest}"]
            indentation = depth
        elif lines is not None and stripped and depth <= indentation and not stripped.startswith(")"):
            lines = None
        elif lines is not None and stripped and not (stripped.startswith("# ---") and depth <= indentation):
            lines.append(stripped)
    return bodies


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    changed = [line for line in unified_diff(before, after, n=0, lineterm="") if line[:3] not in ("---", "+++")]
    taken = " ".join(line[1:] for line in changed if line.startswith("-"))
    given = " ".join(line[1:] for line in changed if line.startswith("+"))
    return taken, given


if __name__ == "__main__":
    sys.exit(main())
