import stat
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import UsageError
from ratoon.server.tenants import SaltDeriver, load_secret, request_salt

SALTS = SaltDeriver(b"s" * 32)


def test_equal_secrets_and_names_give_equal_salts() -> None:
    again = SaltDeriver(b"s" * 32)
    assert request_salt(SALTS.tenant_scope("a"), "x") == request_salt(again.tenant_scope("a"), "x")


def test_another_secret_gives_another_salt() -> None:
    other = SaltDeriver(b"t" * 32)
    assert request_salt(SALTS.tenant_scope("a"), None) != request_salt(other.tenant_scope("a"), None)


def test_a_group_and_a_tenant_of_the_same_name_share_nothing() -> None:
    assert SALTS.group_scope("a") != SALTS.tenant_scope("a")


def test_no_two_of_scope_and_client_salt_give_the_same_salt() -> None:
    scopes = [SALTS.tenant_scope("a"), SALTS.tenant_scope("b"), SALTS.group_scope("a")]
    client_salts = [None, "x", "\0", "\1", scopes[0].hex(), request_salt(scopes[0], None)]
    salts = [request_salt(scope, client_salt) for scope in scopes for client_salt in client_salts]
    assert all(one != other for one, other in combinations(salts, 2))


@given(st.text(), st.text(), st.text())
def test_no_client_salt_leads_into_another_tenant(tenant: str, other: str, client_salt: str) -> None:
    own = request_salt(SALTS.tenant_scope(tenant), client_salt)
    assert (own == request_salt(SALTS.tenant_scope(other), client_salt)) == (tenant == other)
    assert own != request_salt(SALTS.tenant_scope(other), None)


def test_a_secret_is_made_once_for_this_user_only_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret = load_secret(path)
    assert len(secret) == 32
    assert load_secret(path) == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_secret(tmp_path / "another") != secret


@pytest.mark.parametrize("content", ["", "not hex", "abcd", "é"])
def test_a_file_without_a_secret_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"secret holds no secret"):
        load_secret(path)


def test_a_secret_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be made"):
        load_secret(tmp_path / "missing" / "secret")
