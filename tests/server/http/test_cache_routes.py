from typing import Any

import pytest


def test_stats_count_what_the_cache_did(server: Any) -> None:
    server.complete("count what is done", max_tokens=3, ignore_eos=True)
    server.complete("count what is done", max_tokens=3, ignore_eos=True)
    server.wait_until_idle()
    stats = server.get("/cache/stats", key="root").json
    assert (stats["num_query_tokens"], stats["num_hit_tokens"]) == (36, 16)
    # The block after the cached ones was computed twice: two blocks with one key.
    assert (stats["num_idle_blocks"], stats["num_keys"], stats["num_active_blocks"]) == (6, 5, 0)
    assert stats["num_idle_blocks"] + stats["num_free_blocks"] == 199


def test_reset_tells_how_many_blocks_it_dropped(server: Any) -> None:
    server.complete("drop these blocks", max_tokens=1)
    server.wait_until_idle()
    num_idle_blocks = server.get("/cache/stats", key="root").json["num_idle_blocks"]
    first, second = (server.post("/cache/reset", None, key="root").json for _ in range(2))
    assert first["num_dropped_blocks"] == num_idle_blocks > 0
    assert second["num_dropped_blocks"] == 0
    assert second["epoch"] == first["epoch"] + 1
    body = server.complete("drop these blocks", max_tokens=1)
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_blocks_are_listed_in_pages_without_their_tokens(server: Any) -> None:
    server.complete("listed blocks", max_tokens=1)
    server.wait_until_idle()
    pages = [
        server.get(f"/cache/blocks?offset={offset}&limit=80", key="root").json for offset in (0, 80, 160)
    ]
    assert [len(page["blocks"]) for page in pages] == [80, 80, 39]
    blocks = [block for page in pages for block in page["blocks"]]
    assert [block["id"] for block in blocks] == list(range(1, 200))
    assert all(set(block) == {"id", "state", "ref_count", "group", "hash"} for block in blocks)
    idle = [block for block in blocks if block["state"] == "idle"]
    assert idle
    assert all(len(block["hash"]) == 64 and block["ref_count"] == 0 for block in idle)


def test_blocks_in_use_are_shown_with_their_references(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    with server.sent("/v1/completions", {"prompt": "x" * 9, "max_tokens": 9, "n": 2, "ignore_eos": True}):
        server.runner.wait_for_steps(1)
        asked = server.in_background("GET", "/cache/blocks?limit=5", key="root")
        server.wait_for_jobs()
        server.runner.allow(1)
        listing = asked.reply().json
    server.runner.allow(None)
    assert [block["ref_count"] for block in listing["blocks"]] == [2, 2, 1, 1, 0]
    assert [block["state"] for block in listing["blocks"]] == ["active"] * 4 + ["free"]
    assert [block["hash"] is None for block in listing["blocks"]] == [False, False, True, True, True]


@pytest.mark.parametrize("query", ["offset=-1", "limit=0", "limit=1001", "limit=x"])
def test_a_page_out_of_bounds_is_refused(server: Any, query: str) -> None:
    reply = server.get(f"/cache/blocks?{query}", key="root")
    assert reply.status == 400
    assert reply.json["error"]["param"].startswith("query.")
