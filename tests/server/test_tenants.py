import hashlib
from pathlib import Path

import pytest

from ratoon.errors import UsageError
from ratoon.server.http.limits import TenantLimits
from ratoon.server.tenants import KeyRing, SaltDeriver, read_key_file, single_tenant

SALTS = SaltDeriver(b"s" * 32)


def digest(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def ring(tmp_path: Path, text: str) -> KeyRing:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return read_key_file(path, SALTS, TenantLimits(max_prompt_tokens=100))


TWO_TENANTS = f"""
[admin]
keys = ["{digest("root")}"]
[tenants.alice]
keys = ["{digest("a1")}", "{digest("a2")}"]
max_concurrent_requests = 2
request_deadline_s = 1.5
[tenants.bob]
keys = ["{digest("b")}"]
"""


def test_a_key_opens_its_tenant_and_no_other(tmp_path: Path) -> None:
    keys = ring(tmp_path, TWO_TENANTS)
    alice, bob = keys.tenant_of(b"a1"), keys.tenant_of(b"b")
    assert alice is not None
    assert bob is not None
    assert (alice.name, bob.name) == ("alice", "bob")
    assert keys.tenant_of(b"a2") is alice
    assert alice.scope != bob.scope


@pytest.mark.parametrize("key", [None, b"", b"wrong", b"root", b"a1 ", digest("a1").encode()])
def test_nothing_else_opens_a_tenant(tmp_path: Path, key: bytes | None) -> None:
    assert ring(tmp_path, TWO_TENANTS).tenant_of(key) is None


def test_only_the_admin_key_is_admin(tmp_path: Path) -> None:
    keys = ring(tmp_path, TWO_TENANTS)
    assert keys.is_admin(b"root")
    assert not any(keys.is_admin(key) for key in (None, b"", b"a1", b"Root"))


def test_a_tenants_limits_override_the_servers_one_by_one(tmp_path: Path) -> None:
    keys = ring(tmp_path, TWO_TENANTS)
    alice, bob = keys.tenant_of(b"a1"), keys.tenant_of(b"b")
    assert alice is not None
    assert bob is not None
    assert alice.limits == TenantLimits(
        max_concurrent_requests=2, max_prompt_tokens=100, request_deadline_s=1.5
    )
    assert bob.limits == TenantLimits(max_prompt_tokens=100)


def test_tenants_of_a_shared_group_have_one_scope(tmp_path: Path) -> None:
    keys = ring(
        tmp_path,
        "".join(
            f'[tenants.{name}]\nkeys = ["{digest(name)}"]\n{group}\n'
            for name, group in [("a", 'shared_group = "g"'), ("b", 'shared_group = "g"'), ("g", "")]
        ),
    )
    a, b, g = (keys.tenant_of(key) for key in (b"a", b"b", b"g"))
    assert a is not None
    assert b is not None
    assert g is not None
    assert a.scope == b.scope != g.scope
    assert a.name != b.name


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no tenant"),
        ("[tenants", "is not TOML"),
        ("[tenants.a]", r"tenants\.a\.keys must list digests"),
        ('[tenants.a]\nkeys = ["sk-secret"]', r"tenants\.a\.keys must list digests"),
        (f'[tenants.a]\nkeys = ["{digest("x").upper()}"]', "must list digests"),
        (f'[tenants.a]\nkeys = ["{digest("x")}"]\nmax_tokens = 1', r"tenants\.a has no entry max_tokens"),
        (
            f'[tenants.a]\nkeys = ["{digest("x")}"]\nmax_prompt_tokens = 0',
            r"tenants\.a: max_prompt_tokens must be",
        ),
        (
            f'[tenants.a]\nkeys = ["{digest("x")}"]\nshared_group = 3',
            r"tenants\.a\.shared_group must be a name",
        ),
        (
            f'[tenants.a]\nkeys = ["{digest("x")}"]\n[tenants.b]\nkeys = ["{digest("x")}"]',
            "belongs to someone else",
        ),
        (
            f'[admin]\nkeys = ["{digest("x")}"]\n[tenants.b]\nkeys = ["{digest("x")}"]',
            "belongs to someone else",
        ),
        ("tenants = 3", "tenants in the key file must be a table"),
        ("[tenant.a]", "the key file has no entry tenant"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        ring(tmp_path, text)
    assert "sk-secret" not in f"{caught.value.message} {caught.value.hint}"


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_key_file(tmp_path / "none.toml", SALTS, TenantLimits())


def test_without_keys_everybody_is_the_one_tenant_and_nobody_admin() -> None:
    keys = single_tenant(SALTS, TenantLimits())
    tenant = keys.tenant_of(None)
    assert tenant is not None
    assert keys.tenant_of(b"anything") is tenant
    assert not keys.is_admin(None)
    assert not keys.is_admin(b"")


def test_one_key_on_the_command_line_guards_the_one_tenant() -> None:
    keys = single_tenant(SALTS, TenantLimits(), api_key="k", admin_key="root")
    assert keys.tenant_of(b"k") is not None
    assert keys.tenant_of(None) is None
    assert keys.is_admin(b"root")
    assert not keys.is_admin(b"k")
