"""Records logits of Qwen2.5 Coder: `python record_qwen.py MODEL.gguf FOLDER`.

transformers expands the weights of the GGUF file to float32 and computes in it; nothing of Ratoon is used.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]

NUM_TOKENS = 32
NUM_BEST = 10
WINDOW = 768
TEXT = Path(__file__).parents[2] / "docs/concepts.md"
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a town, as it is now.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["town"],
        },
    },
}
CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hello!"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who are you?"}]},
    {"messages": [{"role": "user", "content": "Is it raining in Leiden?"}], "tools": [WEATHER]},
    {
        "messages": [
            {"role": "system", "content": "Use tools."},
            {"role": "user", "content": "Is it raining in Leiden?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"type": "function", "function": {"name": "get_weather", "arguments": {"town": "Leiden"}}}
                ],
            },
            {"role": "tool", "content": '{"rain": true}'},
            {"role": "tool", "content": "<unknown>"},
        ],
        "tools": [WEATHER],
    },
]
PROMPTS = {
    "word": "def",
    "python": "def median(values: list[float]) -> float:\n    ordered = sorted(values)\n",
    "cpp": "// Return the greatest common divisor.\nint gcd(int a, int b) {\n",
    "sql": "SELECT name, COUNT(*) FROM visits\nJOIN towns ON",
    "prose": "The second question is answered sooner, because",
    "german": "Die Mühle wurde im Jahr 1790 gebaut, und zwar von",
    "numbers": "1, 1, 2, 3, 5, 8, 13, 21,",
}


def main(model_file: str, folder: str) -> None:
    """Write `continuations.json`, `perplexity.json` and `chat_cases.json`."""
    torch.set_grad_enabled(False)
    path = Path(model_file)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    engine = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    chats = [chat_case(tokenizer, chat) for chat in CHATS]
    text = tokenizer.encode(TEXT.read_text())
    prompts = {name: tokenizer.encode(prompt) for name, prompt in PROMPTS.items()}
    prompts |= {f"chat{number}": chat["ids"] for number, chat in enumerate(chats)}
    prompts |= {"text200": text[100:300], "text700": text[300:1000]}
    head = {"model": path.name, "engine": engine}
    cases = [continuation(model, name, ids) for name, ids in prompts.items()]
    window = text[:WINDOW]
    losses = torch.log_softmax(model(torch.tensor([window])).logits[0].double(), -1)
    nll = -float(losses[range(WINDOW - 1), window[1:]].mean())
    perplexity = {
        "perplexity": round(math.exp(nll), 4),
        "windows": [{"ids": window, "nll_mean": round(nll, 5)}],
    }
    target = Path(folder)
    target.mkdir(exist_ok=True)
    write(target / "continuations.json", head | {"prompts": cases})
    write(target / "perplexity.json", head | perplexity)
    write(target / "chat_cases.json", chats)


def chat_case(tokenizer: Any, chat: dict[str, Any]) -> dict[str, Any]:
    """Render one conversation with the file's own template."""
    rendered = tokenizer.apply_chat_template(
        chat["messages"], tools=chat.get("tools"), tokenize=False, add_generation_prompt=True
    )
    return chat | {"rendered": rendered, "ids": tokenizer.encode(rendered, add_special_tokens=False)}


def continuation(model: Any, name: str, prompt: list[int]) -> dict[str, Any]:
    """Take the best token `NUM_TOKENS` times."""
    output = model(torch.tensor([prompt]), use_cache=True)
    last = output.logits[0, -1]
    best = torch.topk(last, NUM_BEST)
    log_sum = torch.logsumexp(last.double(), 0)
    top = [
        [int(token), round(float(logit), 5), round(float(logit - log_sum), 5)]
        for logit, token in zip(best.values, best.indices, strict=True)
    ]
    summary = {
        "logsumexp": float(log_sum),
        "mean": float(last.mean()),
        "std": float(last.std(unbiased=False)),
    }
    tokens: list[int] = []
    logits: list[float] = []
    gaps: list[float] = []
    while True:
        first, second = torch.topk(last, 2).values.tolist()
        tokens.append(int(last.argmax()))
        logits.append(round(first, 4))
        gaps.append(round(first - second, 4))
        if len(tokens) == NUM_TOKENS:
            break
        output = model(torch.tensor([[tokens[-1]]]), past_key_values=output.past_key_values, use_cache=True)
        last = output.logits[0, -1]
    rounded = {key: round(value, 5) for key, value in summary.items()}
    return {
        "name": name,
        "prompt": prompt,
        "top": top,
        **rounded,
        "tokens": tokens,
        "logits": logits,
        "gaps": gaps,
    }


def write(path: Path, document: Any) -> None:
    """Write JSON with a line for each element of the outermost list."""
    path.write_text(
        json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("},{", "},\n{") + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
