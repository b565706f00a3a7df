"""Read and write ``config.json``: settings of Atomic and pi, of which two name the broker to start (protocol 2.3)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from intercom.errors import ConfigError, HomeError
from intercom.paths import drafted, read_ordinary_file

COMMAND, ARGUMENTS = "brokerCommand", "brokerArgs"
NAME = "config.json"
KEPT = "config.json.before-intercom"
"""What such a file was called that was in the home before."""
RECORD = "installed.json"
"""What tells in the home what ``install`` found and wrote: ``backups`` by directory, and ``written``, the settings."""


def read(path: Path) -> dict[str, Any] | None:
    """Return the settings in a file, ``None`` without one.

    Raises ``ConfigError`` when it holds something else and ``HomeError`` when this process may not read it.
    """
    try:
        found = json.loads(read_ordinary_file(path).decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON ({error}); it was left as it is", hint="Mend it first.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} does not hold a JSON object; it was left as it is", hint="Mend it first.")
    return found


def write(path: Path, settings: dict[str, Any]) -> None:
    """Replace a file by one with these settings, mode 0600; whoever reads it sees the old or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with drafted(draft) as descriptor:
        os.write(descriptor, json.dumps(settings, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        os.fsync(descriptor)
        os.replace(draft, path)


def copy(path: Path, to: Path) -> None:
    """Copy a file byte for byte with its mode; whoever reads the copy sees all of it or nothing."""
    draft = to.with_name(f".{to.name}.{os.getpid()}")
    shutil.copy2(path, draft)
    os.replace(draft, to)


def is_ours(settings: dict[str, Any] | None) -> bool:
    """Tell whether settings name a broker of this package."""
    arguments = None if settings is None else settings.get(ARGUMENTS)
    if not isinstance(arguments, list) or not arguments or arguments[-1] != "serve":
        return False
    return any("intercom" in str(word) for word in [(settings or {}).get(COMMAND), *arguments])


def with_broker_of(settings: dict[str, Any], original: dict[str, Any] | None) -> dict[str, Any]:
    """Return settings that name the broker the original ones named, if any."""
    others = {key: value for key, value in settings.items() if key not in (COMMAND, ARGUMENTS)}
    return {**others, **{key: (original or {})[key] for key in (COMMAND, ARGUMENTS) if key in (original or {})}}


def differs(settings: dict[str, Any], written: dict[str, Any]) -> bool:
    """Tell whether settings are no longer those that were written, apart from the broker they name."""
    return with_broker_of(settings, None) != with_broker_of(written, None)


def with_changes(
    original: dict[str, Any] | None, written: dict[str, Any] | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the original settings with what was changed in ``settings`` since ``written``; all of it without that."""
    if written is None:
        return with_broker_of(settings, original)
    changed = dict(original or {})
    for key in {**settings, **written}:
        if key in (COMMAND, ARGUMENTS):
            continue
        if key not in settings:
            changed.pop(key, None)
        elif key not in written or settings[key] != written[key]:
            changed[key] = settings[key]
    return changed
