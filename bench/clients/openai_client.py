"""Drive a running server with OpenAI's official client, unmodified: sync, async, streaming.

    python -m venv /tmp/openai && /tmp/openai/bin/pip install openai
    /tmp/openai/bin/python bench/clients/openai_client.py http://127.0.0.1:8000/v1

Prints one line per check and ends with status 0 if all held.
"""

import asyncio
import sys

import openai

MESSAGES = [{"role": "user", "content": "Name three colours."}]


def check_sync(client: openai.OpenAI, model: str) -> str:
    """Chat and completion, whole and streamed, and what they report."""
    whole = client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, max_tokens=24)
    text = whole.choices[0].message.content
    stream = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        temperature=0,
        max_completion_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text, (streamed, text)
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens >= whole.usage.prompt_tokens // 16 * 16
    print("sync chat, whole and streamed:", text)

    for prompt in (["One, two,", "Red, green,"], [[28, 29], [30, 31]]):
        reply = client.completions.create(model=model, prompt=prompt, n=2, max_tokens=5, seed=1, logprobs=2)
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        assert len(reply.choices[0].logprobs.tokens) <= 5
    print("sync completion: lists of texts and of token ids, two answers each")
    return text


async def check_async(client: openai.AsyncOpenAI, model: str, text: str) -> None:
    """Eight streams at once; one of them is closed early."""

    async def stream() -> str:
        chunks = await client.chat.completions.create(
            model=model, messages=MESSAGES, temperature=0, max_tokens=24, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    assert await asyncio.gather(*(stream() for _ in range(8))) == [text] * 8
    chunks = await client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=500, stream=True)
    async for _ in chunks:
        await chunks.close()
        break
    print("async: eight streams at once equal the whole answer; one closed early")


def check_options(client: openai.OpenAI, model: str) -> None:
    """Log-probabilities, tools, several answers, our own fields, errors."""
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "developer", "content": "Be brief."}, *MESSAGES],
        n=2,
        max_tokens=6,
        seed=3,
        logprobs=True,
        top_logprobs=3,
        logit_bias={"0": -100},
        presence_penalty=0.1,
        frequency_penalty=0.1,
        stop=["\n\n"],
        user="someone",
        tools=[
            {
                "type": "function",
                "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
            }
        ],
        tool_choice="auto",
        extra_body={"min_p": 0.05, "top_k": 40, "include_cache_report": True, "cache_salt": "mine"},
    )
    assert len(reply.choices) == 2
    assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 3
    assert reply.usage.ratoon["committed_tokens"] >= 0
    assert reply._request_id == reply.id
    print("options: n, logprobs, tools, logit_bias, extra fields; cache report", reply.usage.ratoon)

    for kind, fields in (
        (openai.NotFoundError, {"model": "no-such-model"}),
        (openai.BadRequestError, {"temperature": -1}),
        (openai.BadRequestError, {"messages": []}),
    ):
        try:
            client.chat.completions.create(**{"model": model, "messages": MESSAGES, **fields})
        except kind as error:
            print("error:", type(error).__name__, error.status_code, error.code, error.param)
        else:
            raise AssertionError(f"{fields} was accepted")


def main() -> None:
    """Run all checks."""
    base_url = sys.argv[1]
    key = sys.argv[2] if len(sys.argv) > 2 else "none"
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)
    (card,) = client.models.list()
    assert client.models.retrieve(card.id) == card
    print(f"openai {openai.__version__}, model {card.id}")
    text = check_sync(client, card.id)
    check_options(client, card.id)
    asyncio.run(check_async(openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0), card.id, text))
    print("all held")


if __name__ == "__main__":
    main()
