"""`TokenSource`: synthetic prompts as token ids, the same for the same seed.

Prompts are made of ids, not of text, because only ids fix how long a prompt is and where two prompts part.
The ids are those of ordinary words, so the model runs as it does on text; what the prompts say is noise,
which a cache does not mind.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from ratoon.errors import InvalidParameterError

WORDS = (
    "In the first spring after the flood the village planted cane along the river and waited for rain. "
    "Every field had an owner, a number and a story; children learned all three before they could read. "
    "When the harvest came, men with long knives cut each stalk close to the ground, carts carried them "
    "away, and nobody dug out the roots. A ratoon crop needs no new seed: it rises from old roots that "
    "already stand, quicker than anything sown, year after year, until its yield falls and the whole "
    "plot is turned over. Merchants who bought sugar by weight wrote prices on doors with chalk. Some "
    "kept ledgers, others trusted memory, and both were sometimes wrong. Rain was measured in jars, "
    "distance in songs, debt in bags of salt. My grandmother said that patience is also a tool, and she "
    "sharpened hers daily: she watched clouds, counted birds, mended nets, told long winding tales about "
    "foxes, bridges, clever judges, lost rings and honest thieves, then sent everybody to bed before "
    "midnight."
)
"""Text whose tokens are the vocabulary of synthetic prompts."""

FALLBACK_IDS = range(1_000, 9_000)
"""Used where a server cannot tokenize: ids that every common vocabulary has and that are seldom special."""

_FEWEST_IDS = 64


class TokenSource:
    """Makes sequences by label: equal seed, vocabulary and label give equal ids."""

    def __init__(self, seed: int, vocabulary: Sequence[int]) -> None:
        self._seed = seed
        self._vocabulary = np.array(sorted(set(vocabulary)))
        if len(self._vocabulary) < _FEWEST_IDS:
            raise InvalidParameterError(
                f"Synthetic prompts need at least {_FEWEST_IDS} different token ids, not "
                f"{len(self._vocabulary)}."
            )

    def tokens(self, label: str, count: int) -> list[int]:
        """Return `count` ids."""
        picks = self._random(label).integers(len(self._vocabulary), size=count)
        return [int(token) for token in self._vocabulary[picks]]

    def parting(self, label: str, lengths: Sequence[int]) -> list[list[int]]:
        """Return one sequence per length, all with different first ids: after a prefix they part at once."""
        firsts = self._random(f"{label}/firsts").choice(self._vocabulary, size=len(lengths), replace=False)
        return [
            [int(first), *self.tokens(f"{label}/{index}", length - 1)]
            for index, (first, length) in enumerate(zip(firsts, lengths, strict=True))
        ]

    def _random(self, label: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed}/{label}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "big"))
