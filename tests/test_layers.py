"""Keep the walls of the house where the design draws them (design section 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PACKAGE = TOP / "intercom"

GROUND = {"errors", "limits", "drains", "loading"}
WIRE = GROUND | {"wire"}
CORE = WIRE | {"core"}
PLACES = {"config", "locks", "paths"}
SERVER = CORE | PLACES | {"store", "cluster", "server"}
CLIENT = WIRE | PLACES | {"client"}

MAY_IMPORT = {
    "errors": {"errors"},
    "limits": {"limits"},
    "drains": {"drains"},
    "loading": {"loading"},
    "config": GROUND | PLACES,
    "paths": GROUND | {"paths"},
    "locks": {"locks", "paths"},
    "wire": WIRE,
    "core": CORE,
    "store": GROUND | PLACES | {"core.records", "store"},
    "cluster": WIRE | PLACES | {"core.records", "cluster"},
    "server": SERVER,
    "client": CLIENT,
    "cli": CLIENT | {"cli"},
    "mcp": CLIENT | {"mcp"},
    "hosts": CLIENT | {"hosts"},
    "testing": CORE | CLIENT | {"testing"},
    "docs": {"docs"},
    "__init__": CLIENT | {"server.embedded"},  # `intercom.serve` is public and loaded on first use, as all names are
    "__main__": CLIENT | {"cli"},
}
"""What each part may import of ours; a dotted name stands for that one module."""

MORE_FOR = {"cli.mcp": {"mcp"}, "cli.cluster": {"cluster"}, "cli.peer": {"cluster"}}
"""What single verbs may import beside that: the package behind them."""
BROKER_SIDE_VERBS = {"cli.serve", "cli.store", "cli.doctor"}
"""The verbs that reach the broker's side."""

HOST_VERBS = {"cli.hook", "cli.install", "cli.linking", "cli.uninstall", "cli.skill", "cli.completion"}
"""The verbs that are how agent hosts, and people who set them up, come in, and what they are made of."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return the dotted name below the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports_of(path: Path, name: str) -> Iterator[str]:
    """Yield the dotted names below the package that a module imports, wherever in it that stands."""
    package = ["intercom", *name.split(".")]
    if path.name != "__init__.py" or name == "__init__":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "intercom":
                    yield alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            if origin.split(".")[0] == "intercom":
                below = origin.partition(".")[2]
                for alias in node.names:
                    yield f"{below}.{alias.name}".strip(".")


def is_allowed(name: str, target: str) -> bool:
    """Tell whether the module ``name`` may import ``target``, a module or a member of one."""
    part = name.split(".")[0]
    if not target or not is_module(target.split(".")[0]):
        return True  # a public name of the package itself, such as its version
    allowed = MAY_IMPORT[part] | MORE_FOR.get(name, set())
    if name in BROKER_SIDE_VERBS:
        allowed = allowed | {"server", "store"}
    if name in HOST_VERBS:
        allowed = allowed | {"hosts"}
    return any(target == one or target.startswith(f"{one}.") for one in allowed)


def is_module(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    """Design section 2."""
    name = name_of(path)
    assert name.split(".")[0] in MAY_IMPORT, f"{name} belongs to no part of the house"
    wrong = [target for target in imports_of(path, name) if not is_allowed(name, target)]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("errors", "limits.KIB"),
        ("wire.codec", "core.broker"),
        ("core.broker", "store.database"),
        ("core.broker", "server.link"),
        ("core.broker", "config.Settings"),
        ("store.writer", "core.broker.Broker"),
        ("store.writer", "wire.codec"),
        ("client.session", "core.records"),
        ("client.launch", "server.app"),
        ("cli.send", "server.app"),
        ("cli.list", "store.database"),
        ("server.app", "client.session"),
        ("core.broker", "cli.main"),
        ("__init__", "server.app.main"),
    ],
)
def test_the_walls_hold(name: str, target: str) -> None:
    assert not is_allowed(name, target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("store.rows", "core.records.OperationRecord"),
        ("server.perform", "core.broker"),
        ("cli.serve", "server.app.main"),
        ("cli.main", "__version__"),
        ("__init__", "server.embedded.serve"),
    ],
)
def test_the_doors_are_open(name: str, target: str) -> None:
    assert is_allowed(name, target)


def test_relative_and_late_imports_are_seen(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text(
        "from . import broker\nfrom ..store import database\nimport intercom.cli.main\n"
        "def late():\n    from intercom.server import app\n"
    )
    found = set(imports_of(source, "core.x"))
    assert found == {"core.broker", "store.database", "cli.main", "server.app"}
