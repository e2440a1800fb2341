"""`LLM`: the library's face. Prompts go in, answers with their usage come out.

The engine runs on a thread of its own, so Ctrl-C, or a reader who loses interest, interrupts the waiting and
never a step. Whatever is left of the call is then cancelled, and its blocks are free before the next step.
"""

import weakref
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from ratoon.cache.events import CacheReset
from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.build import NO_ADAPTERS, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.engine.delta_queue import DeltaQueue
from ratoon.engine.generation import Generation
from ratoon.engine.output import OutputDelta, RequestOutput
from ratoon.engine.prompt_parts import PromptParts, PromptTokens, join_parts, read_part
from ratoon.engine.prompts import (
    Conversation,
    Prompt,
    adapter_for_each,
    is_conversation,
    is_prompt,
    listed,
    one_for_each,
)
from ratoon.engine.request_factory import RequestFactory
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.chat_prompt import encode_chat
from ratoon.text.chat_template import ChatTemplate
from ratoon.util.progress import Progress, TerminalProgress, no_progress


class LLM:
    """A model with its engine. `settings` are the fields of `EngineConfig`.

    `model` is a pulled name, a path, or a Hugging Face repo id; `adapters` are folders by the names that
    requests will use; `chat_template` is a file that takes the place of the model's own template; `progress`
    is told how loading goes. Raises a `RatoonError` where one of them cannot be found, read or run. Methods
    may be called from any thread. Use it as a context, or `close` it, to stop the engine.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        adapters: Mapping[str, str | Path] | None = None,
        chat_template: str | Path | None = None,
        progress: Progress = no_progress,
        **settings: Any,
    ) -> None:
        config = EngineConfig.from_settings(settings)
        self.model = load_model(
            model, config, progress, adapters=adapters or NO_ADAPTERS, chat_template=chat_template
        )
        self._engine = AsyncEngine(build_core(self.model), cores=self.model.cores)
        self._requests = RequestFactory(self.model.chain, self.model.check_params)
        self._close = weakref.finalize(self, self._engine.close)  # at the latest when the interpreter exits

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        adapter: str | Sequence[str | None] | None = None,
        priority: int = 0,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Return the outputs for a prompt or a list of them, in order.

        `params` and the name of an `adapter` hold for all prompts, or there is one for each. Requests of a
        lower `priority` run first. `use_tqdm` shows a bar where stderr is a terminal. Raises a `RequestError`
        before anything runs if one of the prompts could never be served, `UnknownAdapterError` if one asks
        for an adapter that is not loaded, and `EngineError` if a step fails.
        """
        each = [self._read(prompt) for prompt in listed(prompts, is_prompt)]
        return self._complete(each, params, adapter, priority, use_tqdm)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        adapter: str | Sequence[str | None] | None = None,
        priority: int = 0,
        use_tqdm: bool = False,
        **template: Any,
    ) -> list[RequestOutput]:
        """Return the answers to a conversation or a list of them, as `generate` does.

        `template` is for the chat template: `tools`, `documents`, `variables`, `add_generation_prompt`.
        """
        each = [self._render(conversation, template) for conversation in listed(messages, is_conversation)]
        return self._complete(each, params, adapter, priority, use_tqdm)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        adapter: str | None = None,
        priority: int = 0,
    ) -> Generator[OutputDelta]:
        """Yield what comes newly for one prompt; the last delta carries the whole `result`.

        The request begins with the first `next`. It is cancelled if the iterator is closed or dropped early.
        """
        return self._run(self._generations([self._read(prompt)], params, adapter, priority), is_live=True)

    def stream_chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        *,
        adapter: str | None = None,
        priority: int = 0,
        **template: Any,
    ) -> Generator[OutputDelta]:
        """Yield what comes newly for one conversation, as `stream` does; `template` is as for `chat`."""
        generations = self._generations([self._render(messages, template)], params, adapter, priority)
        return self._run(generations, is_live=True)

    def load_adapter(self, name: str, path: str | Path) -> None:
        """Let a name stand for the LoRA adapter in a folder, in place of what it may have stood for.

        Requests that have begun end on the weights they began with. Raises a `CheckpointError` where that is
        no adapter for this model, and `AdapterBudgetError` where there is no room; nothing is changed then.
        """
        self.model.adapters.load(name, path)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter's name; its memory is free when the last request with it has ended.

        Raises `UnknownAdapterError`.
        """
        self.model.adapters.unload(name)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The template given, or the model's own. Raises `ChatTemplateError` where there is none."""
        return self.model.chat_template()

    def cache_stats(self) -> dict[str, int]:
        """Return the cache's counters since the start, and how many of its blocks are what now."""
        return self._engine.call(_cache_stats).result()

    def reset_prefix_cache(self) -> CacheReset:
        """Forget all that was cached; requests that run finish on the blocks they hold."""
        return self._engine.call(lambda core: core.reset_cache()).result()

    def close(self) -> None:
        """Cancel what runs and end the engine's thread."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, prompt: object) -> PromptTokens:
        if not is_prompt(prompt):
            raise InvalidParameterError(
                f"A prompt is a text, a list of token ids or PromptParts, not {prompt!r}."
            )
        if not isinstance(prompt, PromptParts):
            return join_parts([cast(str | Sequence[int], prompt)], self.model.tokenizer)
        width = self.model.spec.hidden_size
        return join_parts([read_part(part, width) for part in prompt.parts], self.model.tokenizer)

    def _render(self, messages: object, template: Mapping[str, Any]) -> PromptTokens:
        if not is_conversation(messages):
            raise InvalidParameterError("A conversation is a list of messages with role and content.")
        conversation = cast(Conversation, messages)
        return PromptTokens(encode_chat(self.model.tokenizer, self.chat_template, conversation, **template))

    def _generations(
        self,
        prompts: Sequence[PromptTokens],
        params: SamplingParams | Sequence[SamplingParams] | None,
        adapter: str | Sequence[str | None] | None,
        priority: int,
    ) -> list[Generation]:
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise InvalidParameterError(f"priority must be a whole number, not {priority!r}.")
        each = one_for_each(params, len(prompts))
        names = adapter_for_each(adapter, len(prompts))
        return [
            self._generation(prompt, own, name, priority)
            for prompt, own, name in zip(prompts, each, names, strict=True)
        ]

    def _generation(
        self, prompt: PromptTokens, params: SamplingParams, adapter_name: str | None, priority: int
    ) -> Generation:
        adapter = None if adapter_name is None else self.model.adapters.get(adapter_name)
        requests = self._requests.make(prompt, params, priority=priority, adapter=adapter)
        return Generation(prompt.text, requests, self.model.tokenizer)

    def _complete(
        self,
        prompts: Sequence[PromptTokens],
        params: SamplingParams | Sequence[SamplingParams] | None,
        adapter: str | Sequence[str | None] | None,
        priority: int,
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        generations = self._generations(prompts, params, adapter, priority)
        results: dict[int, RequestOutput] = {}
        with TerminalProgress(enabled=use_tqdm) as progress:
            for delta in self._run(generations, is_live=False):
                if delta.result is not None:
                    results[delta.request_id] = delta.result
                    progress("answers", len(results), len(generations))
        return [results[generation.request_id] for generation in generations]

    def _run(self, generations: Sequence[Generation], *, is_live: bool) -> Generator[OutputDelta]:
        """Submit all requests together and yield what comes for any of them, until all have ended.

        Unless it `is_live`, what comes may wait for the end of a request, but for stop strings to look for.
        """
        owners = {request.id: generation for generation in generations for request in generation.requests}
        requests = [request for generation in generations for request in generation.requests]
        deltas = DeltaQueue({request.id for request in requests if is_live or request.params.stop})
        running = set(owners)
        try:
            self._engine.submit_all(requests, deltas.put)
            while running:
                for delta in deltas.take():
                    generation = owners[delta.request_id]
                    if delta.finish_reason is not None:
                        running.remove(delta.request_id)
                    news = generation.take(delta)
                    if delta.request_id in running and generation.is_complete(delta.request_id):
                        self._engine.cancel(delta.request_id)
                    yield news
        finally:
            for request_id in running:
                self._engine.cancel(request_id)


def _cache_stats(core: EngineCore) -> dict[str, int]:
    cache = core.scheduler.cache
    return asdict(cache.stats) | {
        "num_preemptions": core.scheduler.num_preemptions,
        "num_usable_blocks": cache.num_usable_blocks,
        "num_free_blocks": cache.num_free_blocks,
        "num_idle_blocks": cache.pool.num_idle,
    }
