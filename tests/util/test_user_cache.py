import pwd
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from ratoon.errors import UsageError
from ratoon.util.user_cache import user_cache_folder


@pytest.mark.parametrize(
    ("platform", "chosen", "expected"),
    [
        ("linux", "", "/home/me/.cache/ratoon"),
        ("linux", "/elsewhere", "/elsewhere/ratoon"),
        ("linux", "relative", "/home/me/.cache/ratoon"),
        ("darwin", "", "/home/me/Library/Caches/ratoon"),
        ("darwin", "/elsewhere", "/elsewhere/ratoon"),
    ],
)
def test_the_folder_is_where_the_platform_keeps_caches(
    platform: str, chosen: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    assert user_cache_folder() == Path(expected)


def test_without_a_home_folder_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user_id: int) -> NoReturn:
        raise KeyError(user_id)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(UsageError, match="no home folder"):
        user_cache_folder()
