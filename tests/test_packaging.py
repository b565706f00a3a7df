"""What is shipped is what was tested: the wheel is built and looked into."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import intercom

TOP = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without a network and without a trace in the checkout."""
    pytest.importorskip("hatchling", reason="building needs the development dependencies")
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=TOP,
        capture_output=True,
        timeout=50,
        check=True,
    )
    [built] = place.iterdir()
    return built


def test_the_wheel_holds_the_package_its_docs_and_its_types_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith("intercom/")}
    tree = {
        path.relative_to(TOP).as_posix()
        for path in (TOP / "intercom").rglob("*")
        if path.is_file() and path.name != ".gitignore" and "__pycache__" not in path.parts
    }
    assert package == tree
    assert {"intercom/py.typed", "intercom/docs/index.md", "intercom/cli/main.py"} <= package
    assert all(".dist-info/" in name for name in names - package)


def test_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
        entry_points = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
        assert metadata.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    assert "\nName: intercom-broker\n" in text
    assert f"\nVersion: {intercom.__version__}\n" in text
    assert "\nLicense-Expression: MIT\n" in text
    assert "\nRequires-Python: >=3.11\n" in text
    assert "intercom = intercom.__main__:run" in entry_points


def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "intercom", "--version"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"intercom {intercom.__version__}\n"


def test_the_version_is_in_the_changelog() -> None:
    changelog = (TOP / "intercom" / "docs" / "changelog.md").read_text()
    assert re.findall(r"^## (\S+)$", changelog, re.MULTILINE)[0] == intercom.__version__


def test_every_import_from_outside_is_a_dependency() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    needed = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    declared = {re.split(r"[><=\[ ]", each)[0] for each in needed}
    found: set[str] = set()
    for path in (TOP / "intercom").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    found = {"mcp" if name in ("mcp_types", "pydantic") else name for name in found}  # they come with it
    found = {"nats-py" if name == "nats" else name for name in found}
    assert found - set(sys.stdlib_module_names) - {"intercom"} == declared


@pytest.mark.parametrize(
    "page", ["README.md", *(f"intercom/docs/{path.name}" for path in (TOP / "intercom" / "docs").iterdir())]
)
def test_links_of_the_docs_lead_somewhere(page: str) -> None:
    place = TOP / page
    for target in re.findall(r"\]\(([^)#]+)\)", place.read_text()):
        assert (place.parent / target).exists(), target


def test_verbs_of_the_docs_exist() -> None:
    from intercom.cli.main import VERBS

    for page in [TOP / "README.md", *(TOP / "intercom" / "docs").iterdir()]:
        named = set(re.findall(r"(?:^\s*\$? ?|`|\| )intercom ([a-z]+)", page.read_text(), re.MULTILINE))
        assert named - {"has", "starts"} <= set(VERBS), page


def test_scripts_can_be_run() -> None:
    for script in ("scripts/run", "scripts/test", "scripts/prepare", ".ci/run"):
        assert os.access(TOP / script, os.X_OK), script
        assert (TOP / script).read_text().startswith("#!/bin/sh\n")


def test_the_top_level_holds_what_it_should() -> None:
    allowed = {"pyproject.toml", "intercom", "tests", "scripts", "LICENSE", "README.md", ".ci"}
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    present = {path.split("/")[0] for path in tracked.stdout.splitlines() if (TOP / path).exists()}
    assert present <= allowed
