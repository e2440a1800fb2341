import json
from collections.abc import Callable

import pytest

from ratoon.errors import LabError
from ratoon.lab.client import Client
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.target import ServerSetup

MakeServers = Callable[..., ManagedServers]
PROMPT = list(range(100, 140))


def test_an_answer_tells_tokens_times_and_cached_tokens(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup()) as target:
        first = target.client.complete(PROMPT, 3)
        second = target.client.complete(PROMPT, 3)

    assert first.error is None
    assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens) == (40, 3, 0)
    assert second.cached_tokens == 32
    assert 0 < first.ttft_s <= first.end_s
    assert first.sent_at_s < second.sent_at_s
    assert first.output_ids == (280, 281, 282)  # what the fake says
    assert first.text_digest == second.text_digest


def test_a_salt_is_sent(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup()) as target:
        answers = [target.client.complete(PROMPT, 1, salt=salt) for salt in ("a", "b", "b")]

    assert [answer.cached_tokens for answer in answers] == [0, 0, 32]


def test_keys_choose_the_tenant(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup(tenants=True)) as target:
        assert target.tenant_keys is not None
        answers = [target.client.complete(PROMPT, 1, api_key=key) for key in target.tenant_keys * 2]

    assert [answer.cached_tokens for answer in answers] == [0, 0, 32, 32]


def test_a_refusal_is_an_answer_with_an_error(make_servers: MakeServers) -> None:
    with make_servers("--fail-after", "1").start(ServerSetup()) as target:
        target.client.complete(PROMPT, 1)
        refused = target.client.complete(PROMPT, 1)

    assert refused.error == "HTTP 500: out of order"


def test_a_stream_that_breaks_off_is_an_answer_with_an_error(make_servers: MakeServers) -> None:
    with make_servers("--cut-streams").start(ServerSetup()) as target:
        cut = target.client.complete(PROMPT, 5)

    assert cut.error == "the stream ended early"
    assert len(cut.arrivals_s) == 1


def test_a_server_that_is_away_is_an_answer_with_an_error(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup()) as target:
        client = target.client

    assert client.complete(PROMPT, 1).error is not None
    with pytest.raises(LabError, match="No answer from"):
        client.text("/metrics")


def test_a_page_that_does_not_exist_is_an_error_with_its_status(make_servers: MakeServers) -> None:
    with (
        make_servers().start(ServerSetup()) as target,
        pytest.raises(LabError, match="HTTP 404: no such page"),
    ):
        target.client.json("/nothing")


def test_an_address_may_end_in_v1_as_clients_of_openai_write_it() -> None:
    assert Client("http://example.test:8000/v1/").url == "http://example.test:8000"


@pytest.mark.parametrize("url", ["example.test:8000", "ftp://example.test", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(LabError, match="not a server's address"):
        Client(url)


def test_messages_and_texts_are_tokenized_by_the_server(make_servers: MakeServers) -> None:
    messages = [{"role": "user", "content": "one two"}]
    with make_servers().start(ServerSetup()) as target:
        assert len(target.token_ids("one two three")) == 3
        assert target.token_ids(messages) == target.token_ids(json.dumps(messages))
