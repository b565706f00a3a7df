"""Make an authority, a certificate of it for loopback, and accounts of the engine, each for one test."""

from __future__ import annotations

import base64
import datetime
import json
import os
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest


def authority(directory: Path, name: str = "ca") -> tuple[Path, Path, Path]:
    """Return the files of an authority, and of a certificate for 127.0.0.1 with its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def begun(subject: str, key: Any) -> Any:
        day = datetime.timedelta(days=1)
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named(name))
        return (
            builder.public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            # Python 3.13 wants both.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False)
        )

    def written(file: str, content: bytes) -> Path:
        path = directory / f"{name}-{file}.pem"
        path.write_bytes(content)
        return path

    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    uses = dict.fromkeys(("key_agreement", "key_encipherment", "data_encipherment", "encipher_only"), False)
    others = dict.fromkeys(("digital_signature", "content_commitment", "crl_sign", "decipher_only"), False)
    signs = x509.KeyUsage(key_cert_sign=True, **uses, **others)
    made = begun(name, root).add_extension(is_authority, critical=True).add_extension(signs, critical=True)
    made = made.sign(root, hashes.SHA256())
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    server = begun("server", own).add_extension(addresses, critical=False).sign(root, hashes.SHA256())
    private = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    return (
        written("authority", made.public_bytes(pem)),
        written("server", server.public_bytes(pem)),
        written("key", private),
    )


class Accounts:
    """Be the operator of an engine whose users show what is signed: one account that may store."""

    def __init__(self) -> None:
        nkeys = pytest.importorskip("nkeys")
        self._nkeys = nkeys
        operator, self._account = self._pair(nkeys.PREFIX_BYTE_OPERATOR), self._pair(nkeys.PREFIX_BYTE_ACCOUNT)
        no_limit = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        stores = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        limits = {**no_limit, **stores, "wildcards": True}
        self._operator_token = self._token(operator, operator, "operator", {})
        self._account_token = self._token(operator, self._account, "account", {"limits": limits})
        self._system = self._pair(nkeys.PREFIX_BYTE_ACCOUNT)
        plain = {**no_limit, "wildcards": True}
        self._system_token = self._token(operator, self._system, "account", {"limits": plain})

    @property
    def settings(self) -> str:
        """Return what the settings of the server need of it."""
        tokens = {
            pair.public_key.decode(): token
            for pair, token in ((self._account, self._account_token), (self._system, self._system_token))
        }
        preloaded = ", ".join(f"{name}: {token}" for name, token in tokens.items())
        return (
            f"operator: {self._operator_token}\nsystem_account: {self._system.public_key.decode()}\n"
            f"resolver: MEMORY\nresolver_preload: {{ {preloaded} }}\n"
        )

    def credentials(self, path: Path, *, of: Accounts | None = None) -> Path:
        """Write the credentials of a new user; ``of``: that another operator's account signed."""
        user = self._pair(self._nkeys.PREFIX_BYTE_USER)
        signer = (of or self)._account
        token = self._token(signer, user, "user", {"subs": -1, "data": -1, "payload": -1})
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        path.chmod(0o600)
        return path

    def _pair(self, kind: int) -> Any:
        return self._nkeys.from_seed(self._nkeys.encode_seed(os.urandom(32), kind))

    def _token(self, signer: Any, subject: Any, kind: str, claims: dict[str, Any]) -> str:
        told = {
            "jti": sha256(os.urandom(8)).hexdigest(),
            "iat": 1_700_000_000,
            "iss": signer.public_key.decode(),
            "sub": subject.public_key.decode(),
            "name": kind,
            "nats": {**claims, "type": kind, "version": 2},
        }
        head = _part(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        body = f"{head}.{_part(json.dumps(told).encode())}"
        return f"{body}.{_part(signer.sign(body.encode()))}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
