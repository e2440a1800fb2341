"""`ratoon demo`: two questions about one document. The first pays for the prefill, the second skips it.

It drives the engine's loop by hand, one step after the other, to show what the loop knows: block tables,
counters and the bits of the logits. Exit status 1 if the cache found another number of tokens than the
prompts have in common, or if the warm answer differs in any bit from a cold one.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from itertools import takewhile

import ratoon
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.spec.cache_group import BlockTables
from ratoon.text.chat_prompt import encode_chat
from ratoon.util.progress import TerminalProgress

MODEL = "smollm2"
GREEDY = SamplingParams(max_tokens=48, temperature=0)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: a file of this package, and two questions with the same words before them."""

    file: str
    task: str
    questions: tuple[str, str]
    num_tokens: int

    def prompt(self, question: str) -> str:
        """Return the message of one question."""
        document = (files("ratoon") / self.file).read_text(encoding="utf-8")
        return self.task.format(document=document, question=question)


HANDBOOK = Subject(
    "cli/demo_document.txt",
    "Read this handbook and answer the question after it.\n\n{document}\nQuestion: {question}",
    ("When was the mill built, and by whom?", "What can visitors expect on the tour?"),
    num_tokens=48,
)
CODE = Subject(
    "cache/pool.py",
    "Here is a Python file.\n\n```python\n{document}```\n\n{question} Answer in two or three sentences.",
    (
        "In which order are blocks evicted, and why?",
        "What does the method `store` do, and when may it be called?",
    ),
    num_tokens=120,
)


def subject_for(model: str) -> Subject:
    """Return what this model answers best."""
    return CODE if "coder" in model.lower() else HANDBOOK


@dataclass(slots=True)
class Asked:
    """One request and all that was seen of it."""

    prompt: list[int]
    token_ids: list[int] = field(default_factory=list)
    logits: list[bytes] = field(default_factory=list)
    block_tables: BlockTables = ()
    cached_tokens: int = 0
    ttft_s: float = 0.0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were run through the model."""
        return len(self.prompt) - self.cached_tokens


class Demonstration:
    """Asks on an engine of its own. Raises a `RatoonError` where a step fails."""

    def __init__(self, model: LoadedModel, params: SamplingParams = GREEDY) -> None:
        self.core: EngineCore = build_core(model, observe_logits=self._observe)
        self._model = model
        self._params = params
        self._asked: list[Asked] = []

    def ask(self, prompt: list[int]) -> Asked:
        """Run one request from its arrival to its end."""
        asked = Asked(prompt)
        request = Request(len(self._asked), self._model.chain(prompt), self._params, seed=0)
        self._asked.append(asked)
        self.core.add(request)
        while self.core.has_work:
            for delta in self.core.step():
                if delta.error is not None:
                    raise delta.error
                asked.token_ids += delta.token_ids
                if delta.usage is not None and delta.timings is not None:
                    asked.cached_tokens = delta.usage.cached_tokens
                    asked.ttft_s = delta.timings.ttft_s or 0.0
            asked.block_tables = request.block_tables or asked.block_tables
        return asked

    def counters(self) -> tuple[int, int]:
        """Return how many tokens were looked up and found so far."""
        stats = self.core.scheduler.cache.stats
        return stats.num_query_tokens, stats.num_hit_tokens

    def _observe(self, request_id: int, position: int, logits: bytes) -> None:
        self._asked[request_id].logits.append(logits)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model and the form of the output."""
    parser.add_argument(
        "--model", metavar="MODEL", default=MODEL, help=f"which model to ask (default: {MODEL})"
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def run(arguments: argparse.Namespace) -> int:
    """Ask both questions, then the second one again with an empty cache."""
    with TerminalProgress() as progress:
        model = load_model(arguments.model, EngineConfig(), progress)
    subject = subject_for(arguments.model)
    prompts = make_prompts(model, subject)
    demonstration = Demonstration(model, replace(GREEDY, max_tokens=subject.num_tokens))
    queries_before, hits_before = demonstration.counters()
    first, second = (demonstration.ask(prompt) for prompt in prompts)
    queries, hits = demonstration.counters()
    demonstration.core.reset_cache()
    cold = demonstration.ask(second.prompt)

    bit_equal = second.token_ids == cold.token_ids and second.logits == cold.logits
    expected = common_prefix(first.prompt, second.prompt) // model.config.block_size * model.config.block_size
    if arguments.json:
        report = {
            "requests": [describe(asked, model) for asked in (first, second)],
            "hit_rate": (hits - hits_before) / (queries - queries_before),
            "bit_equal": bit_equal,
            "versions": versions(model),
        }
        print(json.dumps(report))
    else:
        print(f"Ratoon {ratoon.__version__}, {arguments.model}, {model.ops_name}: two questions\n")
        tell(model, subject, (first, second), expected, bit_equal)
    return 0 if bit_equal and second.cached_tokens == expected else 1


def make_prompts(model: LoadedModel, subject: Subject) -> list[list[int]]:
    """Return the prompts of the two questions: the same document before each."""
    template = model.chat_template()
    return [
        encode_chat(
            model.tokenizer,
            template,
            [{"role": "user", "content": subject.prompt(question)}],
        )
        for question in subject.questions
    ]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two prompts have in common from the start; found from the ids alone."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def describe(asked: Asked, model: LoadedModel) -> dict[str, object]:
    """Return one request for JSON."""
    return {
        "prompt_tokens": len(asked.prompt),
        "cached_tokens": asked.cached_tokens,
        "computed_tokens": asked.computed_tokens,
        "ttft_s": asked.ttft_s,
        "block_tables": asked.block_tables,
        "text": model.tokenizer.decode(asked.token_ids),
    }


def versions(model: LoadedModel) -> dict[str, str]:
    """Return what the figures depend on."""
    libraries = {name: version(name) for name in ("numpy", "gguf", "tokenizers", "jinja2")}
    return {
        "ratoon": ratoon.__version__,
        "python": platform.python_version(),
        **libraries,
        "ops": model.ops_name,
        "weights_digest": model.checkpoint.digest.hex(),
    }


def tell(
    model: LoadedModel, subject: Subject, asked_twice: tuple[Asked, Asked], expected: int, bit_equal: bool
) -> None:
    """Print the same for people."""
    first, second = asked_twice
    size = model.config.block_size
    shared = common_prefix(first.prompt, second.prompt)
    for question, asked in zip(subject.questions, (first, second), strict=True):
        print(f"  Q: {question}\n  A: {model.tokenizer.decode(asked.token_ids).strip()}\n")
    print(f"{'':10}{'prompt':>10}{'cached':>10}{'computed':>10}{'first token':>14}")
    for name, asked in (("first", first), ("second", second)):
        print(
            f"  {name:<8}{len(asked.prompt):>10}{asked.cached_tokens:>10}{asked.computed_tokens:>10}"
            f"{asked.ttft_s:>12.3f} s"
        )
    print(f"\nThe second answer began {first.ttft_s / second.ttft_s:.0f} times sooner.")
    print(
        f"The prompts begin with the same {shared} tokens, which fill {shared // size} blocks of {size}: "
        f"{expected} tokens to find in the cache, {second.cached_tokens} found."
    )
    same = sum(a == b for a, b in zip(first.block_tables[0], second.block_tables[0], strict=False))
    print(f"Both block tables begin with the same {same} block ids: nothing was copied.")
    verdict = "the same tokens and the same logits, bit for bit" if bit_equal else "A DIFFERENT ANSWER"
    print(f"Asked again with an empty cache, the second question has {verdict}.")
