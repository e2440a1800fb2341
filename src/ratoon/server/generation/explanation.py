"""What a caller is told about what of its prompt was not cached."""

from collections.abc import Sequence
from functools import partial

from ratoon.explain.description import Json, describe
from ratoon.lint.prompt import Piece
from ratoon.request.explanation import Explanation
from ratoon.server.served_model import ServedModel

NOT_EXPLAINED: Json = {
    "reason": "unknown",
    "message": "This server explains nothing: it was started with --explain-blocks 0.",
}


def described(
    model: ServedModel, ids: Sequence[int], explanation: Explanation | None, pieces: Sequence[Piece]
) -> Json:
    """Return what is told of the caller's own prompt `ids`, which was made from `pieces`."""
    if explanation is None:
        return NOT_EXPLAINED
    return describe(explanation, ids, partial(model.tokenizer.decode, skip_special=False), pieces)
