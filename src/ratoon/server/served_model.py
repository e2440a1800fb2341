"""`ServedModel`: what the endpoints need of a running engine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from ratoon.engine.adapters import AdapterStore, LoadedAdapter
from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.core import EngineCore
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.identity.digest import digest
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.seed import draw_seed
from ratoon.text.chat_template import ChatTemplate
from ratoon.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """An engine with its texts and its identity.

    `core` is the engine's, kept for what may be read of it from any thread. `load_chat_template` raises
    `ChatTemplateError` where the model has none. `make_chain` and `check_params` raise
    `InvalidParameterError` for ids that the model does not know. `description` are the lines printed at
    the start.
    """

    name: str
    root: bytes
    max_model_len: int
    hidden_size: int
    core: EngineCore
    engine: AsyncEngine
    tokenizer: Tokenizer
    adapters: AdapterStore
    load_chat_template: Callable[[], ChatTemplate]
    make_chain: Callable[[Iterable[int], ExtraKeys], HashChain]
    check_params: Callable[[SamplingParams], None]
    description: Sequence[str] = ()
    draw_seed: Callable[[], int] = draw_seed
    _ids: "count[int]" = field(default_factory=count)

    def fingerprint(self, adapter: LoadedAdapter | None) -> str:
        """Return OpenAI's `system_fingerprint`: where it is equal, equal requests get equal answers."""
        identity = self.root if adapter is None else digest(self.root + adapter.digest)
        return f"fp_{identity.hex()[:16]}"

    def make_request(
        self,
        prompt: PromptTokens,
        params: SamplingParams,
        *,
        seed: int,
        salt: str,
        priority: int = 0,
        adapter: LoadedAdapter | None = None,
        read_cache: bool = True,
        write_cache: bool = True,
    ) -> Request:
        """Return a request to submit. Raises `InvalidParameterError` for unknown token ids."""
        extra_keys = ExtraKeys(
            adapter=None if adapter is None else adapter.digest, salt=salt, media=prompt.media
        )
        return Request(
            next(self._ids),
            self.make_chain(prompt.ids, extra_keys),
            params,
            seed,
            priority,
            read_cache=read_cache,
            write_cache=write_cache,
            rows=prompt.input_rows,
            adapter=adapter,
        )
