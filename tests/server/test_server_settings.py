from pathlib import Path

import pytest

from ratoon.errors import UsageError
from ratoon.server.server_settings import ServerSettings, is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_without_keys_other_machines_are_not_served(host: str) -> None:
    with pytest.raises(UsageError, match="this machine only"):
        ServerSettings(host=host)


def test_unless_told_so_in_so_many_words() -> None:
    assert ServerSettings(host="0.0.0.0", allow_unauthenticated=True).host == "0.0.0.0"


def test_with_keys_any_address_will_do(tmp_path: Path) -> None:
    ServerSettings(host="0.0.0.0", api_keys=tmp_path / "keys.toml")
    ServerSettings(host="0.0.0.0", api_key="k")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)
    ServerSettings(host=host)


def test_keys_come_from_one_place(tmp_path: Path) -> None:
    for option in ("api_key", "admin_key"):
        with pytest.raises(UsageError, match="not from both"):
            ServerSettings(api_keys=tmp_path / "keys.toml", **{option: "k"})  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"port": -1}, {"port": 65536}, {"drain_timeout_s": -1.0}])
def test_numbers_without_a_meaning_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"port|drain"):
        ServerSettings(**settings)  # type: ignore[arg-type]
