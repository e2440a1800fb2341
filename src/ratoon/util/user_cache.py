"""Where Ratoon keeps what it can always make or fetch again."""

import os
import sys
from pathlib import Path


def user_cache_folder() -> Path:
    """Return the folder, whether it exists or not.

    `$XDG_CACHE_HOME/ratoon` where that is set, as the XDG base directory specification asks;
    else `~/Library/Caches/ratoon` on macOS and `~/.cache/ratoon` elsewhere.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the specification says to ignore relative ones
        return Path(chosen, "ratoon")
    home = Path.home()
    return home / "Library/Caches/ratoon" if sys.platform == "darwin" else home / ".cache/ratoon"
