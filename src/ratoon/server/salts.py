"""Cache salts: whose blocks a request may share.

The salt of a request is derived from the server's secret and its tenant's scope, so a client can
neither choose nor guess another tenant's. A `cache_salt` sent by the client is mixed in below the
scope: it narrows sharing within the tenant and cannot leave it, because the scope is the HMAC key under
which the client's text is only the message.
"""

import hmac
import os
import secrets
from pathlib import Path

from ratoon.errors import UsageError

SECRET_BYTES = 32


class SaltDeriver:
    """Derives salts from one secret. Equal secrets and names give equal salts, in every process."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def tenant_scope(self, tenant: str) -> bytes:
        """Return the scope of a tenant that shares with nobody."""
        return self._scope(b"tenant", tenant)

    def group_scope(self, group: str) -> bytes:
        """Return the scope of all tenants in a shared group.

        No tenant's own scope equals it, whatever the names.
        """
        return self._scope(b"group", group)

    def _scope(self, kind: bytes, name: str) -> bytes:
        return hmac.digest(self._secret, b"ratoon cache scope 1\0" + kind + b"\0" + name.encode(), "sha256")


def request_salt(scope: bytes, client_salt: str | None) -> str:
    """Return the salt of a request in `scope`, narrowed by what the client sent."""
    message = b"\0" if client_salt is None else b"\1" + client_salt.encode()
    return hmac.digest(scope, message, "sha256").hex()


def load_secret(path: Path) -> bytes:
    """Read the secret, or make one that only this user can read.

    Raises `UsageError` for a file that holds none.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_secret(path)
    except OSError as error:
        raise UsageError(
            f"The tenant secret {path} cannot be made: {error.strerror}.",
            hint="Name another with --secret-file.",
        ) from error
    secret = secrets.token_bytes(SECRET_BYTES)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret.hex() + "\n")
    return secret


def _read_secret(path: Path) -> bytes:
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise UsageError(
            f"{path} holds no secret of {SECRET_BYTES} bytes in hex.",
            hint="Delete it, and a new one is made.",
        )
    return secret
