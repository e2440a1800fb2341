"""`GrammarCompiler`: from a form to matchers, each form compiled once while it is in use."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ratoon.errors import GrammarError, InvalidParameterError
from ratoon.grammar.matcher import GrammarMatcher
from ratoon.grammar.source import grammar_text
from ratoon.request.structured_outputs import StructuredOutputs

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_FORMS = 64
MAX_TEXT_BYTES = 1 << 20
"""What is kept of compiled forms: so many, made from texts of so many bytes; a form takes up to 300 times
the memory of its text."""

LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 25_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""Bounds on the work that a form may cause: to compile it takes two seconds at most, a mask some 10 ms."""

MAX_ERROR = 200
"""Characters of an error that are passed on: it may quote what was given."""

_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*\])")


class GrammarCompiler:
    """Methods may be called from any thread; only those that wait for the same form wait for each other.

    `tokenizer_json` and `vocab_size` are the model's, `ends` the tokens that end an answer. llguidance reads
    the tokenizer when the first form comes: it takes up to a second and some ten megabytes.
    """

    def __init__(self, tokenizer_json: str, vocab_size: int, ends: Sequence[int]) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._ends = tuple(ends)
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._tokenizer_lock = threading.Lock()
        self._compiled: OrderedDict[StructuredOutputs, Future[LLMatcher]] = OrderedDict()

    @property
    def is_available(self) -> bool:
        """Whether llguidance is installed; it is not imported for this."""
        return find_spec("llguidance") is not None

    def check(self, form: StructuredOutputs) -> None:
        """Compile a form, unless that was done before.

        Raises `GrammarError` where it is malformed, asks for what is not supported, or can never be met, and
        `InvalidParameterError` where llguidance is not installed or the model has no token to end an answer.
        """
        self._prototype(form)

    def matcher(self, form: StructuredOutputs) -> GrammarMatcher:
        """Return a matcher for a new answer. Raises as `check` does."""
        return GrammarMatcher(self._prototype(form).deep_copy(), self._ends)

    def _prototype(self, form: StructuredOutputs) -> "LLMatcher":
        with self._lock:
            future = self._compiled.get(form)
            is_new = future is None
            if future is None:
                future = self._compiled[form] = Future()
                self._forget_oldest()
            self._compiled.move_to_end(form)
        if is_new:
            try:
                future.set_result(self._compile(form))
            except BaseException as error:
                future.set_exception(error)
                with self._lock:
                    self._compiled.pop(form, None)
        return future.result()

    def _forget_oldest(self) -> None:
        sizes = [sum(map(len, form.texts)) for form in self._compiled]
        while len(sizes) > MAX_FORMS or (sum(sizes) > MAX_TEXT_BYTES and len(sizes) > 1):
            self._compiled.popitem(last=False)
            del sizes[0]

    def _compile(self, form: StructuredOutputs) -> "LLMatcher":
        tokenizer = self._load_tokenizer()
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(**LIMITS)  # type: ignore[arg-type]
        matcher = LLMatcher(tokenizer, grammar_text(form), log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # here, since the first mask takes longest
        if matcher.is_error():
            raise GrammarError(_in_words(matcher.get_error()))
        return matcher

    def _load_tokenizer(self) -> "LLTokenizer":
        if not self._ends:
            raise InvalidParameterError(
                "The model has no token that ends an answer, as structured outputs need."
            )
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise InvalidParameterError(
                "Structured outputs need the package llguidance, which is not installed.",
                hint="Install it with: pip install 'ratoon[grammar]'",
            ) from None
        with self._tokenizer_lock:
            if self._tokenizer is None:
                self._tokenizer = LLTokenizer(
                    self._tokenizer_json, n_vocab=self._vocab_size, eos_token=list(self._ends)
                )
            return self._tokenizer


def _in_words(error: str) -> str:
    """Return what llguidance says as a sentence, without excerpts, the keywords of a schema by name."""
    if found := _UNIMPLEMENTED.search(error):
        names = ", ".join(json.loads(found[1]))
        return f"The JSON schema uses what is not supported: {names}."
    if error.startswith("NoExtension"):
        return "No answer could have the form that structured_outputs asks for."
    first, *others = error.partition("<state>")[0].splitlines()
    reasons = [line.removeprefix("error: ") for line in others if line.startswith("error: ")]
    said = ": ".join(line.strip().rstrip(".:") for line in [first, *reasons])
    return f"The form of structured_outputs is refused: {said[:MAX_ERROR]}."
