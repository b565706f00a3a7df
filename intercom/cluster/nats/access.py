"""Read what is needed to reach the engine: files of the settings, each with a clear refusal."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from intercom.config import ClusterSettings
from intercom.limits import CLUSTER_CONNECT_MS, CLUSTER_PING_MS, MESH_KEY_BYTES

EXTRA = "the client library is missing: install intercom-broker[cluster] where the broker runs"
_PRIVATE = 0o077


class Unusable(Exception):
    """Say why other machines cannot be reached: by something a person has to mend, or by the engine."""


class NotNow(Unusable):
    """Say that the engine can store nothing now, as when those that lead in it are lost: others are elected soon."""


class Access(Struct, frozen=True):
    """Hold what opens the engine, and the key that the brokers share."""

    key: bytes
    options: dict[str, Any]
    """For ``nats.connect``."""


def access_to(settings: ClusterSettings) -> Access:
    """Return what opens the engine; raise ``Unusable``, naming the setting and the file, for what cannot be used."""
    key = _read("key_file", settings.key_file, is_secret=True)
    if len(key) != MESH_KEY_BYTES:
        raise Unusable(f"key_file {settings.key_file} must hold {MESH_KEY_BYTES} bytes, it holds {len(key)}")
    options: dict[str, Any] = {
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": CLUSTER_CONNECT_MS / 1000,
        "ping_interval": CLUSTER_PING_MS // 1000,
        "max_outstanding_pings": 2,
    }
    if settings.credentials:
        if find_spec("nkeys") is None:
            raise Unusable(EXTRA)
        _read("credentials", settings.credentials, is_secret=True)
        options["user_credentials"] = os.path.expanduser(settings.credentials)
    if settings.token_file:
        token = _read("token_file", settings.token_file, is_secret=True).decode("utf-8", "replace").strip()
        if not token:
            raise Unusable(f"token_file {settings.token_file} is empty")
        options["token"] = token
    if settings.tls_ca or any(url.startswith("tls://") for url in settings.url):
        options["tls"] = _tls(settings)
    return Access(key, options)


def _tls(settings: ClusterSettings) -> Any:
    import ssl

    if not settings.tls_ca:
        return ssl.create_default_context()
    certificates = _read("tls_ca", settings.tls_ca)
    try:
        return ssl.create_default_context(cadata=certificates.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise Unusable(f"tls_ca {settings.tls_ca} holds no certificates: {error.reason or error}") from None


def _read(setting: str, path: str, *, is_secret: bool = False) -> bytes:
    """Return what is in a file of the settings; a secret must be closed to others."""
    place = Path(os.path.expanduser(path))
    try:
        with place.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unusable(f"{setting} {path} is no file")
            if is_secret and status.st_mode & _PRIVATE:
                raise Unusable(f"{setting} {path} can be read by others: run chmod 600 {path}")
            return file.read()
    except IsADirectoryError:
        raise Unusable(f"{setting} {path} is no file") from None
    except OSError as error:
        raise Unusable(f"{setting} {path} cannot be read: {error.strerror or error}") from None
