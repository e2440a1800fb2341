"""Many clients at once on a pool too small for them: every answer is right, and nothing is left over."""

import json
import random
import threading
from typing import Any

NUM_CLIENTS = 24
REQUESTS_PER_CLIENT = 4


def test_answers_under_load_equal_those_alone_and_no_block_is_lost(start_server: Any) -> None:
    server = start_server(num_blocks=40, max_num_seqs=12, max_model_len=120)
    rng = random.Random(7)
    prompts = [f"{'common prefix ' * (i % 3)}{rng.randbytes(6).hex() * (1 + i % 3)}" for i in range(9)]
    expected = {
        (prompt, seed): server.complete(prompt, temperature=1, seed=seed, max_tokens=40)["choices"][0]["text"]
        for prompt in prompts
        for seed in range(2)
    }
    server.post("/cache/reset", None, key="root")
    wrong: list[Any] = []
    finished: list[Any] = []

    def be_a_client(number: int) -> None:
        rng = random.Random(number)
        for _ in range(REQUESTS_PER_CLIENT):
            prompt, seed = rng.choice(prompts), rng.randrange(2)
            body = {"prompt": prompt, "temperature": 1, "seed": seed, "max_tokens": 40, "stream": True}
            with server.opened("POST", "/v1/completions", body) as response:
                if rng.random() < 0.2:
                    response.readline()  # and goes away
                    continue
                events = response.read().decode().split("\n\n")
            chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
            text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
            finished.append(number)
            if text != expected[prompt, seed]:
                wrong.append((prompt, seed, text))

    threads = [threading.Thread(target=be_a_client, args=(number,)) for number in range(NUM_CLIENTS)]
    server.runner.hold()
    for thread in threads:
        thread.start()
    server.wait_for_requests(NUM_CLIENTS)
    server.runner.allow(None)
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    assert len(finished) > NUM_CLIENTS
    server.check_blocks()
    found = server.metrics()
    assert found["ratoon_preemptions_total"] > 0, "the pool was meant to be too small"
    assert found['ratoon_requests_total{outcome="failed"}'] == 0
