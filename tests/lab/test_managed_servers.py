from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.errors import LabError
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.target import RemoteServers, ServerSetup
from ratoon.lab.token_source import FALLBACK_IDS

MakeServers = Callable[..., ManagedServers]
PROMPT = list(range(100, 140))


def test_every_server_is_fresh_and_its_output_is_kept(make_servers: MakeServers, tmp_path: Path) -> None:
    servers = make_servers()
    for _ in range(2):
        with servers.start(ServerSetup()) as target:
            assert target.client.complete(PROMPT, 1).cached_tokens == 0

    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["server-1.log", "server-2.log"]


def test_a_server_is_gone_when_its_context_is_left(make_servers: MakeServers) -> None:
    with pytest.raises(RuntimeError), make_servers().start(ServerSetup()) as target:
        raise RuntimeError
    with pytest.raises(LabError, match="No answer"):
        target.client.text("/health")


def test_caching_can_be_off(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup(caching=False)) as target:
        answers = [target.client.complete(PROMPT, 1) for _ in range(2)]

    assert [answer.cached_tokens for answer in answers] == [0, 0]


def test_a_pool_has_at_least_the_tokens_asked_for(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup(pool_tokens=1_000)) as target:
        assert target.pool_tokens == 1_008  # 63 blocks of 16


def test_a_server_that_does_not_start_says_why(make_servers: MakeServers) -> None:
    with (
        pytest.raises(LabError, match=r"ended with status 1 .* no model of that name"),
        make_servers("--fail-start").start(ServerSetup()),
    ):
        pass


def test_a_report_can_name_the_model(make_servers: MakeServers) -> None:
    assert make_servers().describe()["model digest"] == "00ff"


def test_a_server_by_url_is_taken_as_it_is(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup()) as managed:
        servers = RemoteServers(managed.client.url)
        with servers.start(ServerSetup()) as target:
            assert target.client.model == "fake"
            assert target.counters() is not None
        assert servers.describe()["counters"] == "read from /metrics"
        for setup, reason in (
            (ServerSetup(caching=False), "caching off"),
            (ServerSetup(tenants=True), "two keys"),
        ):
            with pytest.raises(LabError, match=reason), servers.start(setup):
                pass


def test_a_server_without_counters_is_said_to_have_none(make_servers: MakeServers) -> None:
    with make_servers("--no-metrics").start(ServerSetup()) as managed:
        servers = RemoteServers(managed.client.url)
        with servers.start(ServerSetup()) as target:
            assert target.counters() is None
            assert target.pool_tokens is None
        assert servers.describe()["counters"] == "none found at /metrics"


def test_the_vocabulary_is_that_of_words_where_the_server_tokenizes(make_servers: MakeServers) -> None:
    with make_servers().start(ServerSetup()) as target:
        assert target.can_tokenize
        assert target.vocabulary is not FALLBACK_IDS
