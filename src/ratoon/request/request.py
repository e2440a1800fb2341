"""`Request`: one prompt on its way to one answer."""

from dataclasses import dataclass, field
from enum import Enum

from ratoon.identity.hash_chain import HashChain
from ratoon.request.explanation import Explanation
from ratoon.request.finish import Usage
from ratoon.request.hit_limit import HitLimit
from ratoon.request.input_rows import InputRows
from ratoon.request.retention import Retention
from ratoon.request.sampling_params import SamplingParams


class RequestStatus(Enum):
    """Where a request stands."""

    WAITING = "waiting"  # holds no blocks: newly arrived or preempted
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """The library or the server makes it; from `Scheduler.add` on the scheduler is the only writer.

    The chain holds the prompt, then the output as it becomes known. `priority` is as in vLLM: lower numbers
    come first, equal ones in order of arrival. Without `read_cache` every position is computed afresh;
    without `write_cache` nothing of the request can be found by others. `n` answers to one prompt are n
    requests. `rows` has the input rows of the chain's media items, in order; the tokens there mean nothing.
    `adapter` is held, and so kept in memory, until the request ends; which one it is, its digest in the chain
    says. `retention` is the caller's hint for what `tenant` will ask again; it changes no key.
    """

    id: int
    chain: HashChain
    params: SamplingParams
    seed: int
    priority: int = 0
    read_cache: bool = True
    write_cache: bool = True
    rows: tuple[InputRows, ...] = ()
    adapter: object = None
    tenant: str = ""
    """For whom it runs; requests of one tenant may be told of each other's text."""
    retention: Retention | None = None

    num_prompt_tokens: int = field(init=False)

    # Fixed at arrival.
    arrival: int = field(default=0, init=False)
    stop_ids: frozenset[int] = field(default=frozenset(), init=False)
    token_limit: int = field(default=0, init=False)
    """Known tokens, prompt included, at which the answer ends whatever its last token is."""

    # Progress, which starts anew after preemption.
    status: RequestStatus = field(default=RequestStatus.WAITING, init=False)
    num_computed: int = field(default=0, init=False)
    """Positions whose KV is written or taken from the cache."""
    num_reserved: int = field(default=0, init=False)
    """Positions with a slot in the block tables."""
    block_tables: tuple[tuple[int, ...], ...] = field(default=(), init=False)
    prompt_logprobs: list[tuple[tuple[int, float], ...] | None] = field(default_factory=list, init=False)
    """Collected up to the first output token, with which they are handed over."""

    num_told: int = field(default=0, init=False)
    """Known tokens that the runner has been told for penalties; it remembers them through preemption."""

    # Accounts, kept through preemption: each prompt position counts once, by how it was first obtained.
    num_accounted: int = field(default=0, init=False)
    """Prompt positions that were obtained at least once."""
    num_cached: int = field(default=0, init=False)
    """Those of them that came from the cache."""
    limited_by: HitLimit | None = field(default=None, init=False)
    """What allowed no more of them."""
    explanation: Explanation | None = field(default=None, init=False)
    """Why no more of the prompt was cached, if explanations are on."""
    num_committed: int = field(default=0, init=False)
    """Tokens that others could find when the request last gave its blocks back."""
    num_drafts: int = field(default=0, init=False)
    """Drafts that were verified for this request."""
    num_accepted_drafts: int = field(default=0, init=False)
    """Those of them that were accepted."""
    num_forced: int = field(default=0, init=False)
    """Output tokens that the form of the answer forced: each was a step saved."""

    # Moments on the engine's clock, in seconds.
    arrival_s: float = field(default=0.0, init=False)
    first_scheduled_s: float | None = field(default=None, init=False)
    first_token_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = self.chain.num_tokens
        media = self.chain.extra_keys.media
        assert [item.length for item in media] == [rows.num_rows for rows in self.rows], "each has its rows"
        assert not media or media[-1].end <= self.num_prompt_tokens, "rows stand in the prompt"

    @property
    def reads_cache(self) -> bool:
        """Whether committed blocks may be used: not where log-probabilities need every position computed."""
        return self.read_cache and self.params.prompt_logprobs is None

    @property
    def rank(self) -> tuple[int, int]:
        """What comes first among requests: the smaller rank."""
        return self.priority, self.arrival

    @property
    def num_known(self) -> int:
        """Tokens of prompt and output."""
        return len(self.chain.tokens)

    @property
    def num_generated(self) -> int:
        """Output tokens."""
        return len(self.chain.tokens) - self.num_prompt_tokens

    def tokens_between(self, first: int, end: int) -> list[int | None]:
        """Return the known tokens at positions `first` to `end`, None where input rows stand for them."""
        tokens: list[int | None] = list(self.chain.tokens[first:end])
        media = self.chain.extra_keys.media
        for number in self.chain.extra_keys.media_between(first, end):
            gap = slice(max(media[number].offset - first, 0), min(media[number].end, end) - first)
            tokens[gap] = [None] * (gap.stop - gap.start)
        return tokens

    @property
    def max_drafts(self) -> int:
        """Drafts that could all become known, with one more token sampled after them."""
        return self.token_limit - len(self.chain.tokens) - 1

    @property
    def usage(self) -> Usage:
        """Tokens up to now."""
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            cached_tokens=self.num_cached,
            completion_tokens=self.num_generated,
            limited_by=self.limited_by,
            explanation=self.explanation,
            committed_tokens=self.num_committed,
            draft_tokens=self.num_drafts,
            accepted_draft_tokens=self.num_accepted_drafts,
        )
