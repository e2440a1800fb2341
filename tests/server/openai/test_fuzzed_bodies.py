"""Bodies that nobody meant: always a JSON answer, never a crash, no block lost."""

import base64
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratoon.server.openai.body import UNSUPPORTED
from ratoon.server.openai.chat import ChatBody
from ratoon.server.openai.completions import CompletionBody

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({*CompletionBody.model_fields, *ChatBody.model_fields, *UNSUPPORTED})
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "token_ids", "prompt_embeds", "image"])},
    optional={
        "text": st.text(max_size=5),
        "token_ids": st.lists(st.integers(-1, 300), max_size=4),
        "data": st.binary(max_size=20).map(lambda data: base64.b64encode(b"\x93NUMPY\x01" + data).decode()),
    },
)
NEARLY_RIGHT = {
    "prompt": st.text(max_size=20)
    | st.lists(PARTS, max_size=3)
    | st.lists(st.integers(-1, 300), max_size=8)
    | st.lists(st.text(max_size=3), max_size=3),
    "messages": st.lists(
        st.fixed_dictionaries({"role": st.text(max_size=5) | JSON, "content": st.text(max_size=9) | JSON}),
        max_size=3,
    ),
    "max_tokens": st.integers(-1, 5),
    "n": st.integers(-1, 4),
    "stream": st.booleans(),
    "logit_bias": st.dictionaries(st.integers(-1, 300).map(str), st.floats(-110, 110), max_size=3),
    "stop": st.text(max_size=2) | st.lists(st.text(max_size=2), max_size=3),
    "logprobs": st.booleans() | st.integers(-1, 21),
}
BODIES = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=2).flatmap(
    lambda odd: st.fixed_dictionaries({}, optional=NEARLY_RIGHT).map(lambda right: {**right, **odd})
)
PATHS = st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, body=BODIES | JSON)
def test_any_body_gets_an_answer(server: Any, path: str, body: object) -> None:
    reply = server.post(path, body)
    assert reply.status < 500
    if reply.headers["content-type"] == "application/json":
        assert isinstance(json.loads(reply.body), dict)
    if reply.status >= 400:
        assert set(reply.json["error"]) == {"message", "type", "param", "code"}


def test_no_block_is_lost(server: Any) -> None:
    server.check_blocks()
