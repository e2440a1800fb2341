"""`RequestFactory`: makes the requests for the answers to a prompt, for the library and the server."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.seed import child_seed, draw_seed

MakeChain = Callable[[Iterable[int], ExtraKeys], HashChain]


class RequestFactory:
    """Makes requests with ids of their own; `make` may be called from any thread.

    `make_chain` and `check_params` are the model's: they raise `InvalidParameterError` for token ids outside
    its vocabulary. `draw_seed` gives the seed of prompts whose parameters name none.
    """

    def __init__(
        self,
        make_chain: MakeChain,
        check_params: Callable[[SamplingParams], None],
        *,
        draw_seed: Callable[[], int] = draw_seed,
    ) -> None:
        self._make_chain = make_chain
        self._check_params = check_params
        self._draw_seed = draw_seed
        self._ids = count(1)

    def make(
        self,
        prompt: PromptTokens,
        params: SamplingParams,
        *,
        salt: str | None = None,
        priority: int = 0,
        adapter: LoadedAdapter | None = None,
        tenant: str = "",
        read_cache: bool = True,
        write_cache: bool = True,
        score_prompt_once: bool = True,
    ) -> list[Request]:
        """Return the `params.n` requests of a prompt, which is hashed once.

        They differ in their seeds. With `score_prompt_once` only the first computes the log-probabilities of
        the prompt, if `params` ask for them. Raises `InvalidParameterError` for unknown token ids.
        """
        self._check_params(params)
        digest = None if adapter is None else adapter.digest
        chain = self._make_chain(prompt.ids, ExtraKeys(adapter=digest, salt=salt, media=prompt.media))
        chains = [chain, *(chain.fork() for _ in range(params.n - 1))]
        seed = self._draw_seed() if params.seed is None else params.seed
        unscored = replace(params, prompt_logprobs=None) if score_prompt_once and params.n > 1 else params
        return [
            Request(
                next(self._ids),
                own_chain,
                unscored if child else params,
                child_seed(seed, child),
                priority,
                read_cache=read_cache,
                write_cache=write_cache,
                rows=prompt.input_rows,
                adapter=adapter,
                tenant=tenant,
            )
            for child, own_chain in enumerate(chains)
        ]
