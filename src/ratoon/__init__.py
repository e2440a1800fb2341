"""Ratoon: LLM inference for ordinary machines, built around automatic prefix caching.

The public names are `LLM`, `SamplingParams`, `PromptParts`, `Media` and the errors in `ratoon.errors`. They
are imported when first used, so that `import ratoon` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratoon.engine.llm import LLM
    from ratoon.engine.prompt_parts import Media, PromptParts
    from ratoon.request.sampling_params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Media", "PromptParts", "SamplingParams", "__version__"]

_HOMES = {
    "LLM": "ratoon.engine.llm",
    "Media": "ratoon.engine.prompt_parts",
    "PromptParts": "ratoon.engine.prompt_parts",
    "SamplingParams": "ratoon.request.sampling_params",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ratoon' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
