"""Reads a cache script and refuses whatever is wrong with it before anything is carried out.

What is left to fail then is an operation on a request that is not where the script supposes it to be.
"""

import json
from collections.abc import Callable

from ratoon.cache.script.fields import (
    FieldError,
    Fields,
    anything,
    array_of,
    boolean,
    hexadecimal,
    integer,
    object_of,
    text,
)
from ratoon.cache.script.operations import (
    Admit,
    Append,
    CacheScript,
    Compute,
    Draft,
    Free,
    Operation,
    Preempt,
    Reset,
    Resume,
    State,
    Verify,
)
from ratoon.errors import CacheScriptError, InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.spec.cache_group import CacheGroupSpec

MAX_TOKEN_ID = 2**32 - 1
MAX_TOKENS = 2**20
MAX_BLOCKS = 2**20
"""Bounds that keep a slip of the pen from filling the machine's memory."""


def read_script(source: str) -> CacheScript:
    """Read a script; raises `CacheScriptError` that says which operation, counted from 1, is at fault."""
    try:
        script = Fields(json.loads(source, object_pairs_hook=object_of))
        groups = script.optional("groups", array_of(_group), [CacheGroupSpec()])
        num_blocks = script.required("num_blocks", integer(2, MAX_BLOCKS))
        block_size = script.required("block_size", integer(1, MAX_TOKENS))
        share_in_flight = script.optional("share_in_flight", boolean, True)
        operations = script.required("ops", array_of(anything))
        script.finish()
        if not groups:
            raise FieldError("`groups` must not be empty")
    except FieldError as error:
        raise CacheScriptError(f"The script is not a cache script: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise CacheScriptError(f"The script is not JSON: {error}.") from None
    return CacheScript(
        groups=tuple(groups),
        num_blocks=num_blocks,
        block_size=block_size,
        share_in_flight=share_in_flight,
        operations=tuple(_numbered(number, value) for number, value in enumerate(operations, 1)),
    )


def _numbered(number: int, value: object) -> Operation:
    try:
        return _operation(Fields(value))
    except FieldError as error:
        raise CacheScriptError(f"Operation {number} is malformed: {error}.") from None


def _operation(fields: Fields) -> Operation:
    name = fields.required("op", text)
    read = _READERS.get(name)
    if read is None:
        raise FieldError(f"`{name}` is not an operation; there are {', '.join(_READERS)}")
    operation = read(fields)
    fields.finish()
    return operation


def _group(value: object) -> CacheGroupSpec:
    fields = Fields(value)
    kind = fields.required("kind", text)
    if kind not in ("full", "sliding"):
        raise FieldError("`kind` must be full or sliding")
    window = fields.required("window", integer(1, MAX_TOKENS)) if kind == "sliding" else None
    fields.finish()
    return CacheGroupSpec(window)


def _request(fields: Fields) -> str:
    return fields.required("request", text)


def _tokens(fields: Fields) -> tuple[int, ...]:
    """Read `tokens`, then `ranges`; at least one token in all."""
    tokens: list[int] = fields.optional("tokens", array_of(integer(0, MAX_TOKEN_ID)), [])
    ranges: list[tuple[int, int]] = fields.optional("ranges", array_of(_range), [])
    for first, end in ranges:
        if len(tokens) + end - first > MAX_TOKENS:
            raise FieldError(f"more than {MAX_TOKENS} tokens in one operation")
        tokens.extend(range(first, end))
    if not tokens:
        raise FieldError("`tokens` and `ranges` give no token")
    return tuple(tokens)


def _range(value: object) -> tuple[int, int]:
    ends = array_of(integer(0, MAX_TOKEN_ID + 1))(value)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise FieldError("must be two numbers, the first not above the second")
    return ends[0], ends[1]


def _media_item(value: object) -> MediaItem:
    fields = Fields(value)
    item = MediaItem(
        content=fields.required("digest", hexadecimal),
        offset=fields.required("offset", integer(0, MAX_TOKENS)),
        length=fields.required("length", integer(1, MAX_TOKENS)),
    )
    fields.finish()
    return item


def _admit(fields: Fields) -> Admit:
    request, tokens = _request(fields), _tokens(fields)
    salt: str | None = fields.optional("salt", text, None)
    adapter: bytes | None = fields.optional("adapter", hexadecimal, None)
    media: list[MediaItem] = fields.optional("media", array_of(_media_item), [])
    if media and media[-1].offset + media[-1].length > len(tokens):
        raise FieldError("`media` reaches beyond the prompt")
    try:
        return Admit(request, tokens, ExtraKeys(adapter=adapter, salt=salt, media=tuple(media)))
    except InvalidParameterError as error:
        raise FieldError(error.message.rstrip(".")) from None


def _compute(fields: Fields) -> Compute:
    num_tokens: int | None = fields.optional("num_tokens", integer(1, MAX_TOKENS), None)
    return Compute(_request(fields), num_tokens)


_READERS: dict[str, Callable[[Fields], Operation]] = {
    "admit": _admit,
    "compute": _compute,
    "append": lambda fields: Append(_request(fields), _tokens(fields)),
    "draft": lambda fields: Draft(_request(fields), _tokens(fields)),
    "verify": lambda fields: Verify(_request(fields), fields.required("accepted", integer(0, MAX_TOKENS))),
    "preempt": lambda fields: Preempt(_request(fields)),
    "resume": lambda fields: Resume(_request(fields)),
    "free": lambda fields: Free(_request(fields)),
    "reset": lambda fields: Reset(),
    "state": lambda fields: State(),
}
