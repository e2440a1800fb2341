"""`Body`: JSON objects as clients send them, checked strictly.

A known field has exactly its type: no number in quotes, no truth value for a number. Fields that nobody
knows are kept aside and answered with a warning. Fields known to OpenAI's clients that would change the
answer and that this server does not do are refused, unless they ask for nothing.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("none",),
    "prediction": (),
    "web_search_options": (),
    "chat_template": (),
    "suffix": ("",),
    "best_of": (1,),
}
"""Fields this server does not do, with the values that ask for nothing besides null."""

WITHOUT_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "safety_identifier",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
"""Fields that describe the caller and not the answer: accepted in silence."""


class Body(BaseModel):
    """A JSON object with known fields checked strictly and unknown ones kept aside."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    def unknown_fields(self) -> list[str]:
        """Return the paths of the fields that have no meaning here, in this object and those inside it."""
        names = [name for name in self.model_extra or {} if name not in WITHOUT_EFFECT | UNSUPPORTED.keys()]
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Body):
                names += [f"{name}.{inner}" for inner in value.unknown_fields()]
        return names


def utf8_text(value: str) -> str:
    """Return the text.

    Raises `ValueError` for half a surrogate pair, which JSON can carry and UTF-8 cannot.
    """
    value.encode()
    return value
