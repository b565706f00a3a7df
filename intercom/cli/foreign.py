"""Know where Atomic and pi look for a broker, which is a directory of theirs and not the home (protocol 2.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from intercom.errors import HomeError


class Host(NamedTuple):
    """Name a program with clients of its own: what it is called, and how it finds its agent directory."""

    title: str
    variables: tuple[str, ...]
    standard: str
    """Agent directory below the user's directory, when no variable names one."""


HOSTS = {
    "atomic": Host("Atomic", ("ATOMIC_CODING_AGENT_DIR", "PI_CODING_AGENT_DIR"), ".atomic/agent"),
    "pi": Host("pi", ("PI_CODING_AGENT_DIR",), ".pi/agent"),
}
STDERR_LOG = "broker.log"
"""What a foreign client hands to the broker it starts as standard error (protocol 2.2)."""


def runtime_directory(host: Host, environ: Mapping[str, str]) -> Path:
    """Return where the clients of a host look; the last part of the path may be a symbolic link.

    Raises ``HomeError`` when a variable holds what cannot be a path.
    """
    user = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    directory = next(filter(None, map(environ.get, host.variables)), None) or os.path.join(user, host.standard)
    if directory == "~" or directory.startswith("~/"):
        directory = user + directory[1:]
    try:
        return Path(os.path.realpath(directory), "intercom")
    except (OSError, ValueError) as error:
        raise HomeError(f"the agent directory cannot be used as a path: {directory!r} ({error})") from error


def known_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield every place where a client of some host may look, with the variables and without them."""
    bare = {name: environ[name] for name in ("HOME", "USERPROFILE") if name in environ}
    for variables in (environ, bare):
        for host in HOSTS.values():
            yield runtime_directory(host, variables)


def foreign_directory(environ: Mapping[str, str], stderr: int = 2) -> Path:
    """Return the directory, or the link, where the client that started this process looks for a broker.

    Clients differ in where they look and all start a broker alike, but each hands over a file of its own directory as
    standard error. Where that tells nothing it is the directory of protocol 2.1.
    """
    for directory in known_directories(environ):
        try:
            if os.path.samestat(os.stat(directory / STDERR_LOG), os.fstat(stderr)):
                return directory
        except OSError:
            continue
    return runtime_directory(HOSTS["atomic"], environ)
