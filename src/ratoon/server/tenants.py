"""Tenants: who a key belongs to, what the tenant may use, and whose cache it shares.

A key file is TOML. It holds SHA-256 digests, never keys:

    [admin]
    keys = ["sha256:5e88…"]

    [tenants.alice]
    keys = ["sha256:2bd8…", "sha256:77f0…"]
    shared_group = "research"      # shares cached prefixes with every tenant of this group
    max_concurrent_requests = 8    # these four override the server's limits, downwards or upwards
    max_prompt_tokens = 4000
    max_output_tokens = 500
    request_deadline_s = 60

Presented keys are hashed and compared with every digest in constant time. Keys appear in no log and no
error.

The cache salt of a request is derived from the server's secret and its tenant's scope, so a client can
neither choose nor guess another tenant's. A `cache_salt` sent by the client is mixed in below the scope: it
narrows sharing within the tenant and cannot leave it, because the scope is the HMAC key under which the
client's text is only the message.
"""

import hashlib
import hmac
import os
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ratoon.errors import InvalidParameterError, UsageError
from ratoon.server.http.limits import TenantLimits

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
FORMAT_HINT = "docs/operate/tenants.md shows the format."
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


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose requests are counted together, and whose cached prefixes are its own or its shared group's."""

    name: str
    scope: bytes
    limits: TenantLimits


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Which digests open which door. `open_tenant` is who comes in without a key, None where nobody does."""

    tenants: Mapping[bytes, Tenant]
    admins: tuple[bytes, ...]
    open_tenant: Tenant | None = None

    def tenant_of(self, key: bytes | None) -> Tenant | None:
        """Return the tenant that a presented key belongs to."""
        if self.open_tenant is not None:
            return self.open_tenant
        found = None
        presented = _digest(key)
        for digest, tenant in self.tenants.items():
            if hmac.compare_digest(
                digest, presented
            ):  # no early exit: the time tells nothing about the place
                found = tenant
        return found

    def is_admin(self, key: bytes | None) -> bool:
        """Whether a presented key opens the admin endpoints."""
        presented = _digest(key)
        return any([hmac.compare_digest(digest, presented) for digest in self.admins])  # noqa: C419  # no early exit

    def describe(self) -> str:
        """Return in a few words who shares with whom."""
        if not self.tenants or self.open_tenant is not None:
            return "one tenant, no key needed"
        names: dict[bytes, set[str]] = {}
        for tenant in self.tenants.values():
            names.setdefault(tenant.scope, set()).add(tenant.name)
        groups = [" + ".join(sorted(group)) for group in names.values()]
        return f"by key; sharing only within: {', '.join(groups)}"


def single_tenant(
    salts: SaltDeriver, limits: TenantLimits, *, api_key: str | None = None, admin_key: str | None = None
) -> KeyRing:
    """Return the ring of a server without a key file: one tenant, behind a key if there is one."""
    tenant = Tenant("default", salts.tenant_scope("default"), limits)
    admins = () if admin_key is None else (_digest(os.fsencode(admin_key)),)
    if api_key is None:
        return KeyRing({}, admins, open_tenant=tenant)
    return KeyRing({_digest(os.fsencode(api_key)): tenant}, admins)


def read_key_file(path: Path, salts: SaltDeriver, defaults: TenantLimits) -> KeyRing:
    """Read a key file. Raises `UsageError` that names the entry at fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The key file {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The key file {path} is not TOML: {error}.", hint=FORMAT_HINT) from error
    _refuse_unknown(document, ("admin", "tenants"), "the key file")
    admin = _table(document, "admin")
    _refuse_unknown(admin, ("keys",), "admin")
    admins = tuple(_digests(admin, "admin")) if admin else ()
    tenants: dict[bytes, Tenant] = {}
    for name in _table(document, "tenants"):
        entry = _table(document["tenants"], name)
        tenant = _tenant(name, entry, salts, defaults)
        for digest in _digests(entry, f"tenants.{name}"):
            if digest in tenants or digest in admins:
                raise UsageError(f"A key of tenants.{name} belongs to someone else too.", hint=FORMAT_HINT)
            tenants[digest] = tenant
    if not tenants:
        raise UsageError(f"The key file {path} names no tenant.", hint=FORMAT_HINT)
    return KeyRing(tenants, admins)


def _tenant(name: str, entry: Mapping[str, object], salts: SaltDeriver, defaults: TenantLimits) -> Tenant:
    limit_names = [limit.name for limit in fields(TenantLimits)]
    _refuse_unknown(entry, ["keys", "shared_group", *limit_names], f"tenants.{name}")
    group = entry.get("shared_group")
    if group is not None and (not isinstance(group, str) or not group):
        raise UsageError(f"tenants.{name}.shared_group must be a name.", hint=FORMAT_HINT)
    scope = salts.tenant_scope(name) if group is None else salts.group_scope(group)
    own_limits: dict[str, Any] = {limit: entry[limit] for limit in limit_names if limit in entry}
    try:
        return Tenant(name, scope, replace(defaults, **own_limits))
    except InvalidParameterError as error:
        raise UsageError(f"tenants.{name}: {error.message}", hint=FORMAT_HINT) from error


def _digests(entry: Mapping[str, object], where: str) -> list[bytes]:
    texts = entry.get("keys")
    if (
        not isinstance(texts, list)
        or not texts
        or not all(isinstance(text, str) and DIGEST.fullmatch(text) for text in texts)
    ):
        raise UsageError(
            f"{where}.keys must list digests written sha256: and 64 small hex digits.",
            hint="printf %s THE_KEY | sha256sum prints one.",
        )
    return [bytes.fromhex(text.removeprefix("sha256:")) for text in texts]


def _digest(key: bytes | None) -> bytes:
    return hashlib.sha256(key).digest() if key else b""  # which equals no digest


def _table(parent: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = parent.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{name} in the key file must be a table.", hint=FORMAT_HINT)
    return table


def _refuse_unknown(table: Mapping[str, object], known: Sequence[str], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UsageError(f"{where} has no entry {unknown[0]}.", hint=f"There are: {', '.join(known)}.")
