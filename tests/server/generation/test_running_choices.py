"""Outputs come in the engine's order, whoever cancels and however slowly they are read."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from ratoon.engine.async_engine import AsyncEngine, Listener
from ratoon.engine.output import OutputDelta
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.engine.request_factory import RequestFactory
from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.server.generation.choices import Choice
from ratoon.server.generation.request import EncodedPrompt
from ratoon.server.generation.running_choices import DeltaDispatcher, RunningChoices
from ratoon.server.generation.usage import RequestUsage
from ratoon.server.metrics import Metrics
from tests.support.fake_model import check_params, make_chain, make_tokenizer

PROMPT = EncodedPrompt(PromptTokens(list(b"a prompt")))


class ScriptedEngine:
    """Delivers what a test tells it; a cancelled request ends when `step` is called."""

    def __init__(self) -> None:
        self.listener: Listener = print
        self.ids: list[int] = []
        self.cancelled: list[int] = []

    def submit_all(self, requests: Sequence[Request], listener: Listener) -> None:
        self.ids = [request.id for request in requests]
        self.listener = listener

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)

    def give(self, choice: int, text: str, reason: FinishReason | None = None, **fields: Any) -> None:
        usage = Usage(8, 4, len(text)) if reason else None
        timings = Timings(0.0, 9.0, 0.5) if reason else None
        self.listener(
            RequestDelta(
                self.ids[choice],
                tuple(text.encode()),
                finish_reason=reason,
                usage=fields.get("usage", usage),
                timings=timings,
            )
        )

    def step(self) -> None:
        for choice, request_id in enumerate(self.ids):
            if request_id in self.cancelled:
                self.give(choice, "", FinishReason.CANCELLED)


class Run:
    """Two choices of one prompt in a scripted engine. Made on the event loop."""

    def __init__(self, **params: Any) -> None:
        self.engine = ScriptedEngine()
        requests = RequestFactory(make_chain, check_params).make(PROMPT.tokens, SamplingParams(n=2, **params))
        tokenizer = make_tokenizer()
        self.choices = [Choice(index, own, PROMPT, tokenizer) for index, own in enumerate(requests)]
        self.usage = RequestUsage([choice.usage for choice in self.choices], n=2, arrived_s=0.0)
        engine = cast(AsyncEngine, self.engine)
        self.running = RunningChoices(engine, DeltaDispatcher(), self.choices, Metrics(), self.usage)


def shown(outputs: list[OutputDelta]) -> list[tuple[int, str, str | None]]:
    return [(output.index, output.text, output.finish_reason) for output in outputs]


async def turn() -> None:
    """Let the event loop do what is due."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_slow_reader_gets_everything_in_order_at_its_next_read() -> None:
    async def read() -> None:
        run = Run()
        async with run.running as running:
            outputs = running.outputs()
            run.engine.give(0, "a")
            assert shown(await anext(outputs)) == [(0, "a", None)]
            run.engine.give(1, "x")
            await turn()
            run.engine.give(0, "b")
            run.engine.give(1, "y")
            await turn()
            run.engine.give(0, "c", FinishReason.LENGTH)
            run.engine.give(1, "z", FinishReason.LENGTH)
            await turn()
            expected = [
                (1, "x", None),
                (0, "b", None),
                (1, "y", None),
                (0, "c", "length"),
                (1, "z", "length"),
            ]
            assert shown(await anext(outputs)) == expected
            assert [output async for output in outputs] == []
        assert run.engine.cancelled == []

    asyncio.run(read())


def test_what_comes_after_a_stop_string_is_left_out_and_usage_is_the_engines() -> None:
    async def read() -> None:
        run = Run(stop=["b"])
        async with run.running as running:
            outputs = running.outputs()
            run.engine.give(0, "a", usage=Usage(8, 4, 1))
            run.engine.give(0, "b")
            run.engine.give(1, "a", FinishReason.LENGTH)
            assert shown(await anext(outputs)) == [(0, "a", None), (0, "", "stop"), (1, "a", "length")]
            assert run.engine.cancelled == [run.engine.ids[0]]
            assert run.usage.so_far().cached_tokens == 4
            assert run.choices[0].is_in_engine
            run.engine.give(0, "late")
            run.engine.step()
            assert [output async for output in outputs] == []
        assert run.usage.so_far().completion_tokens == 3
        assert run.usage.queue_s == 0.5

    asyncio.run(read())


def test_leaving_cancels_what_runs_and_waits_for_the_engine() -> None:
    async def read() -> None:
        run = Run()

        async def leave() -> None:
            async with run.running as running:
                async for _ in running.outputs():
                    return

        leaving = asyncio.create_task(leave())
        await turn()
        run.engine.give(1, "x", FinishReason.LENGTH)
        await turn()
        assert run.engine.cancelled == [run.engine.ids[0]]
        run.engine.give(0, "computed before it was cancelled")
        await turn()
        assert not leaving.done()
        run.engine.step()
        await leaving
        assert not any(choice.is_in_engine for choice in run.choices)

    asyncio.run(read())


def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing_running() -> None:
    async def read() -> None:
        run = Run()

        async def wait() -> None:
            async with run.running as running:
                async for _ in running.outputs():
                    pass

        waiting = asyncio.create_task(wait())
        await turn()
        waiting.cancel()
        await turn()
        assert run.engine.cancelled == run.engine.ids
        assert not waiting.done()
        run.engine.step()
        await asyncio.wait((waiting,))
        assert waiting.cancelled()

    asyncio.run(read())


def test_usage_before_any_token_counts_the_prompt_once() -> None:
    async def read() -> None:
        run = Run()
        usage = run.usage.so_far()
        assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (8, 0, 0)
        assert (run.usage.queue_s, run.usage.ttft_s) == (None, None)

    asyncio.run(read())
