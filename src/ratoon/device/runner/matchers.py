"""`RequestMatchers`: where each answer with a form stands in its grammar."""

from collections.abc import Callable, Iterable

from ratoon.errors import GrammarError
from ratoon.grammar.matcher import GrammarMatcher
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.step import SampleSpec, ScheduledChunk

MakeMatcher = Callable[[StructuredOutputs], GrammarMatcher]


def no_grammars(form: StructuredOutputs) -> GrammarMatcher:
    """Stand in for a compiler where no request has a form."""
    raise AssertionError(f"nothing compiles {form}")


class RequestMatchers:
    """One matcher per request, from its first sampling chunk until a plan says that the request ended.

    The state follows from the tokens alone: a runner that has not seen a request before gets all of them.
    """

    def __init__(self, make: MakeMatcher) -> None:
        self._make = make
        self._by_request: dict[int, GrammarMatcher] = {}

    def forget(self, request_ids: Iterable[int]) -> None:
        """Drop what is kept for requests that ended."""
        for request_id in request_ids:
            self._by_request.pop(request_id, None)

    def at(self, request_id: int, spec: SampleSpec) -> GrammarMatcher | None:
        """Return the matcher after the request's known tokens; None where the answer has no form.

        Raises `GrammarError` where it can get no further.
        """
        form = spec.params.structured_outputs
        if form is None:
            return None
        matcher = self._by_request.get(request_id)
        if matcher is None:
            matcher = self._by_request[request_id] = self._make(form)
        num_missing = spec.num_generated - matcher.num_tokens
        assert 0 <= num_missing <= len(spec.new_output_token_ids), "what was not seen is told"
        if num_missing:
            matcher.accept(spec.new_output_token_ids[-num_missing:])
        return matcher

    def cut(self, chunk: ScheduledChunk) -> ScheduledChunk:
        """Return the chunk without the drafts that its answer's form forbids, and those after them."""
        if not chunk.num_drafts or chunk.sample is None:
            return chunk
        try:
            matcher = self.at(chunk.request_id, chunk.sample)
        except GrammarError:
            return chunk  # the request ends when its turn to sample comes
        if matcher is None:
            return chunk
        num_known = len(chunk.token_ids) - chunk.num_drafts
        num_drafts = matcher.num_allowed(chunk.token_ids[num_known:])
        return chunk._replace(token_ids=chunk.token_ids[: num_known + num_drafts], num_drafts=num_drafts)
