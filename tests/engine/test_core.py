from collections.abc import Callable
from typing import Any

import pytest


def test_x(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    bench.add(range(1, 20))
    bench.run()
    for chunk in (16, 3, 1, 7):
        for windows in ((None,), (None, 5), (6,)):
            for share in (True, False):
                bench = make_bench(max_num_batched_tokens=chunk, windows=windows, share_in_flight=share, num_blocks=33)
                for i in range(10):
                    bench.add(list(range(1, 20)) + list(range(i)), max_tokens=12)
                bench.run()
                print(chunk, windows, share, bench.scheduler.num_preemptions, bench.computed_tokens, bench.cache.stats)
