"""Reach the host lab: a folder beside this project that runs agent hosts from npm against a scripted model.

It is no part of this project and is loaded from wherever it lies; what is used of it is named here and nowhere else.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

VARIABLE = "INTERCOM_HOSTLAB"
"""Names the folder of the lab."""


class NoLab(Exception):
    """Say why nothing can be run here."""


class Lab:
    """Be the lab in a folder, with hosts installed in another one."""

    def __init__(self, folder: Path, installed: Path) -> None:
        """Load it; raises ``NoLab``."""
        for program in ("npm", "node"):
            if shutil.which(program) is None:
                raise NoLab(f"{program} is not here")
        if not (folder / "lab.py").is_file():
            raise NoLab(f"there is no host lab in {folder}")
        sys.path.insert(0, str(folder))
        self._lab = import_module("lab")
        self._hosts = import_module("hosts")
        self._model = import_module("scripted_model")
        self._installed = installed

    @property
    def names(self) -> list[str]:
        """Return the hosts it knows."""
        return list(self._hosts.HOSTS)

    def install(self, host: str) -> str:
        """Install a host unless it is there, and return its version."""
        folder = self._installed / host
        if not (folder / "node_modules").is_dir():
            self._hosts.HOSTS[host].install(folder)
        version: str = self._hosts.HOSTS[host].installed_version(folder)
        return version

    def run(self, host: str, home: Path, project: Path, steps: Sequence[Any], *arguments: str) -> Any:
        """Return a run of a host, to be entered with ``with``; its settings are written at once."""
        setup = self._hosts.Setup(home, project, arguments=list(arguments))
        return self._lab.Lab(host, setup, self._model.parse_script(list(steps)), self._installed / host)


def folder_of(option: str | None) -> Path:
    """Return the folder that was named; raises ``NoLab``."""
    named = option or os.environ.get(VARIABLE, "")
    if not named:
        raise NoLab(f"no host lab was named, by --lab or {VARIABLE}")
    return Path(named).resolve()
