"""Test the files of the settings: each that cannot be used is refused with its setting and its path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from intercom.cluster.nats.access import Unusable, access_to
from intercom.config import ClusterSettings

CERTIFICATE_OF_NOBODY = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return secret(tmp_path / "mesh.key", bytes(range(32)))


def secret(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def settings(key: Path, **more: object) -> ClusterSettings:
    return ClusterSettings(url=("nats://127.0.0.1:1",), key_file=str(key), **more)  # type: ignore[arg-type]


def test_the_key_and_a_token(key: Path, tmp_path: Path) -> None:
    access = access_to(settings(key, token_file=str(secret(tmp_path / "token", b"open sesame\n"))))
    assert access.key == bytes(range(32))
    assert access.options["token"] == "open sesame"
    assert access.options["allow_reconnect"] is False and "tls" not in access.options


def test_a_path_may_begin_at_the_home_of_the_user(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(key.parent))
    assert access_to(ClusterSettings(url=("nats://h",), key_file="~/mesh.key")).key == bytes(range(32))


def test_credentials(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.cluster.nats.access.find_spec", lambda name: name)
    found = secret(tmp_path / "user.creds", b"x")
    assert access_to(settings(key, credentials=str(found))).options["user_credentials"] == str(found)


def test_credentials_need_a_library_of_their_own(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is told as what to install."""
    monkeypatch.setattr("intercom.cluster.nats.access.find_spec", lambda name: None)
    found = secret(tmp_path / "user.creds", b"x")
    with pytest.raises(Unusable, match="client library is missing: install intercom-broker"):
        access_to(settings(key, credentials=str(found)))


def test_tls(key: Path) -> None:
    """Certificates are checked against those of the system when no others are named."""
    import ssl

    access = access_to(ClusterSettings(url=("tls://h:1",), key_file=str(key)))
    assert access.options["tls"].verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [(b"short", 0o600, "must hold 32 bytes, it holds 5"), (bytes(32), 0o640, "can be read by others: run chmod 600")],
)
def test_a_key_that_cannot_be_used(tmp_path: Path, content: bytes, mode: int, why: str) -> None:
    path = secret(tmp_path / "mesh.key", content, mode)
    with pytest.raises(Unusable, match=why) as refused:
        access_to(settings(path))
    assert str(path) in str(refused.value) and str(refused.value).startswith("key_file")


@pytest.mark.parametrize("name", ["credentials", "token_file", "tls_ca"])
def test_a_file_that_is_missing(key: Path, name: str) -> None:
    with pytest.raises(Unusable, match=f"{name} {key.parent}/none cannot be read: No such file"):
        access_to(settings(key, **{name: str(key.parent / "none")}))


def test_what_is_no_file_and_what_holds_nothing(key: Path, tmp_path: Path) -> None:
    os.mkdir(tmp_path / "directory")
    with pytest.raises(Unusable, match="is no file"):
        access_to(settings(key, token_file=str(tmp_path / "directory")))
    with pytest.raises(Unusable, match="is empty"):
        access_to(settings(key, token_file=str(secret(tmp_path / "token", b" \n"))))
    with pytest.raises(Unusable, match="holds no certificates"):
        access_to(settings(key, tls_ca=str(secret(tmp_path / "ca", CERTIFICATE_OF_NOBODY.encode()))))
