"""Random JSON schemas of what is supported, small enough that answers end."""

import random
from collections.abc import Callable
from typing import Any

WORDS = ("alpha", "beta", "Zürich", "a b", 'say "hi"', "\\", "δ", "🌍", "n/a")


def random_schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """Return a schema; deeper than `depth` it is a plain value."""
    kinds: tuple[Callable[[random.Random, int], dict[str, Any]], ...] = (_plain,)
    if depth:
        kinds = (_object, _object, _array, _any_of, _ref, _plain)
    return rng.choice(kinds)(rng, depth)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(WORDS, rng.randint(0, 4))
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth - 1) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
        "additionalProperties": False,
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randint(0, 2)
    schema = {"type": "array", "items": random_schema(rng, depth - 1), "minItems": least}
    if rng.random() < 0.3:
        schema["prefixItems"] = [random_schema(rng, 0) for _ in range(2)]
    return schema | {"maxItems": least + rng.randint(0, 3)}


def _any_of(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


def _ref(rng: random.Random, depth: int) -> dict[str, Any]:
    """Return a pair of what `$defs` names, at the top, where `$defs` may stand."""
    if depth < 3:
        return _plain(rng, depth)
    own = random_schema(rng, 1)
    pair = [{"$ref": "#/$defs/own"}, {"$ref": "#/$defs/own"}]
    return {"type": "array", "prefixItems": pair, "items": False, "minItems": 2, "$defs": {"own": own}}


def _plain(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    return rng.choice(
        (
            {"type": "string", "maxLength": rng.randint(0, 12)},
            {"type": "string", "pattern": rng.choice((r"^[a-z]{1,9}$", r"^\d{4}-\d{2}$", r"^(x|yy|é)*$"))},
            {"type": "string", "format": rng.choice(("date", "time", "uuid", "ipv4", "email"))},
            {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)},
            {"type": "number", "minimum": low / 8, "maximum": low / 8 + rng.randint(1, 50)},
            {"type": "integer", "multipleOf": rng.randint(1, 12), "minimum": 0, "maximum": 10_000},
            {"type": "boolean"},
            {"type": "null"},
            {"const": rng.choice((*WORDS, 1.5, None, [1, {"a": "b"}]))},
            {"enum": rng.sample((*WORDS, 1, 2, None, True), 3)},
            {"type": ["integer", "null"], "maximum": 99, "minimum": 0},
        )
    )
