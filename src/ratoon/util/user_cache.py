"""Where Ratoon keeps what it can always make or fetch again."""

import os
import sys
from pathlib import Path

from ratoon.errors import UsageError


def user_cache_folder() -> Path:
    """Return the folder, whether it exists or not.

    `$XDG_CACHE_HOME/ratoon` where that is set, as the XDG base directory specification asks;
    else `~/Library/Caches/ratoon` on macOS and `~/.cache/ratoon` elsewhere. Raises `UsageError` where
    nothing says where that is.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the specification says to ignore relative ones
        return Path(chosen, "ratoon")
    try:
        home = Path.home()
    except RuntimeError:
        raise UsageError(
            "There is no home folder to keep models in.", hint="Set HOME or XDG_CACHE_HOME."
        ) from None
    return home / "Library/Caches/ratoon" if sys.platform == "darwin" else home / ".cache/ratoon"
