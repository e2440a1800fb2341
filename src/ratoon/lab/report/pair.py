"""The report of `Pair`: whether there is a hit, and whether the sample resolves a gain."""

from collections.abc import Callable

from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREY
from ratoon.lab.report.report import Plot, Report, Section, Table, Value, share, write_estimate, write_number
from ratoon.lab.report.samples import Sample, failures, good_samples, spread
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import median, paired_difference, paired_ratio

CLOCKS: dict[str, Callable[[Sample], float]] = {
    "TTFT": lambda sample: sample.answer.ttft_s,
    "E2E": lambda sample: sample.answer.end_s,
}
CLOCK_TITLES = tuple(f"{name} (s)" for name in CLOCKS)

Pairs = list[tuple[Sample, Sample]]
"""First and second request of each repetition."""


def report(run: RunStore) -> Report:
    """Analyse a run of `Pair`, whole or interrupted."""
    samples = {sample["key"]: sample for sample in good_samples(run.rows)}
    pairs = [
        (sample, second)
        for sample in samples.values()
        if sample["cell"]["request"] == "first"
        and (second := samples.get(f"{sample['repetition']}/second")) is not None
    ]
    failed = failures(run.rows, lambda cell: f"{cell['request']} request")
    settings = run.manifest["settings"]
    question = (
        f"Two requests share a prefix of {settings['prefix_len']:,} tokens and differ in the question "
        "that follows. What does the second one find in the cache, and is it faster for it?"
    )
    if not pairs:
        return Report("Pair", question, ("No pair was measured.",), (), failed)
    return Report(
        "Pair",
        question,
        (
            *_progress_finding(len(pairs), settings["repetitions"]),
            _hit_finding(pairs),
            *(_gain_finding(name, pairs) for name in CLOCKS),
        ),
        (
            Section(
                "Requests",
                "Medians over the repetitions, with 95 % intervals.",
                (_plot(pairs),),
                (_table(pairs),),
            ),
            Section("Samples", "Every repetition has a prefix of its own.", (), (_samples_table(pairs),)),
        ),
        failed,
        (
            "An interval is the exact one of a median, from order statistics; it takes 6 repetitions. "
            "Differences and ratios are taken within each pair.",
            "The second request always comes second, so what coming second does by itself is not told "
            "apart here; ratoon lab sweep randomises the order.",
        ),
    )


def _progress_finding(measured: int, asked: int) -> list[str]:
    if measured == asked:
        return []
    return [
        f"{measured} of {asked} repetitions were measured: the run was interrupted, or requests failed. "
        "It can be resumed."
    ]


def _hit_finding(pairs: Pairs) -> str:
    firsts, seconds = zip(*pairs, strict=True)
    hits = [sample.hit_tokens for sample in seconds]
    if None in hits:
        return "Whether there was a hit cannot be said: the server tells neither counters nor cached tokens."
    if any(not sample.as_expected for sample in (*firsts, *seconds)):
        return (
            "The hits are not those worked out from the token ids: the second request found "
            f"{spread(hits)} of an expected {spread([sample['expected_tokens'] for sample in seconds])} "
            f"tokens, the first {spread([sample.hit_tokens or 0 for sample in firsts])} of 0."
        )
    prompt = seconds[0].answer.prompt_tokens
    return (
        f"The hit is certain: in {_each(len(pairs))} the second request found {hits[0]:,} of its "
        f"{prompt:,} prompt tokens in the cache ({100 * hits[0] / prompt:.1f} %), exactly those worked "
        "out from the token ids; the first found none."
    )


def _gain_finding(name: str, pairs: Pairs) -> str:
    before, after = ([CLOCKS[name](sample) for sample in side] for side in zip(*pairs, strict=True))
    difference = paired_difference(before, after)
    if not difference.excludes(0):
        why = "too few repetitions" if difference.low is None else "the interval includes zero"
        return f"A gain in {name} is not resolved by this sample ({why}): {write_estimate(difference, 's')}."
    ratio = paired_ratio(before, after).value
    direction = "falls" if difference.value < 0 else "rises"
    return (
        f"The {'gain' if direction == 'falls' else 'loss'} in {name} is resolved: it {direction} from "
        f"{write_number(median(before).value)} s to {write_number(median(after).value)} s, by "
        f"{write_estimate(difference, 's', -1 if direction == 'falls' else 1)}; the second request takes "
        f"{write_number(100 * ratio)} % of the first one's time."
    )


def _each(count: int) -> str:
    return f"each of {count} repetitions" if count > 1 else "one repetition"


def _table(pairs: Pairs) -> Table:
    rows: list[tuple[Value, ...]] = []
    sides = list(zip(*pairs, strict=True))
    for name, side in zip(("first", "second"), sides, strict=True):
        hits = [sample.hit_tokens for sample in side if sample.hit_tokens is not None]
        queries = [sample["counted"]["queries"] for sample in side if sample["counted"]]
        rate = share(sum(hits), sum(sample.answer.prompt_tokens for sample in side)) if hits else None
        clocks = [median([clock(sample) for sample in side]) for clock in CLOCKS.values()]
        prompts = [sample.answer.prompt_tokens for sample in side]
        rows.append((name, len(side), spread(prompts), spread(queries), spread(hits), rate, *clocks))
    values = [[[clock(sample) for sample in side] for side in sides] for clock in CLOCKS.values()]
    rows.append(
        ("second less first", len(pairs), "", "", "", None, *(paired_difference(*sides) for sides in values))
    )
    rows.append(("second / first", len(pairs), "", "", "", None, *(paired_ratio(*sides) for sides in values)))
    columns = (
        "request", "n", "prompt (tokens)", "queries (tokens)", "hits (tokens)", "hit rate (%)", *CLOCK_TITLES
    )  # fmt: skip
    return Table("pair", "Counter differences and times of both requests.", columns, tuple(rows), main=True)


def _samples_table(pairs: Pairs) -> Table:
    rows = tuple(
        (
            sample["repetition"],
            sample["cell"]["request"],
            sample.answer.prompt_tokens,
            sample["counted"] and sample["counted"]["queries"],
            sample.hit_tokens,
            *(clock(sample) for clock in CLOCKS.values()),
        )
        for pair in pairs
        for sample in pair
    )
    columns = (
        "repetition",
        "request",
        "prompt (tokens)",
        "queries (tokens)",
        "hits (tokens)",
        *CLOCK_TITLES,
    )
    return Table("samples", "Raw samples.", columns, rows)


def _plot(pairs: Pairs) -> Plot:
    with drawing.style():
        figure, (tokens, *clocks) = drawing.panels(3)
        for place, side in enumerate(zip(*pairs, strict=True)):
            hits = side[0].hit_tokens or 0
            tokens.bar(place, hits, 0.55, color=BLUE, label="found in the cache" if place else None)
            computed = side[0].answer.prompt_tokens - hits
            tokens.bar(
                place, computed, 0.55, bottom=hits, color="#dddddd", edgecolor=GREY, hatch="//",
                label="computed" if place else None,
            )  # fmt: skip
            text = f"{hits:,} found\n{computed:,} computed"
            tokens.annotate(
                text, (place, hits + computed), (0, 4), textcoords="offset points", ha="center", fontsize=8.5
            )
        tokens.set_title("Prompt tokens")
        tokens.set_ylabel("tokens")
        tokens.set_ylim(0, 1.55 * pairs[0][1].answer.prompt_tokens)
        tokens.legend(loc="upper center", ncols=2, fontsize=8, columnspacing=1)
        for axes, (name, clock) in zip(clocks, CLOCKS.items(), strict=True):
            for pair in pairs:
                axes.plot(
                    [0, 1], [clock(sample) for sample in pair], "-o", color=GREY, alpha=0.5, ms=4, lw=0.9
                )
            middles = [median([clock(sample) for sample in side]).value for side in zip(*pairs, strict=True)]
            axes.plot([0, 1], middles, "s", color=BLUE, ms=8, label="median", zorder=3)
            axes.set_title(name)
            axes.set_ylabel(f"{name} (s)")
            axes.set_ylim(bottom=0)
            axes.legend(loc="upper right")
        for axes in (tokens, *clocks):
            axes.set_xticks([0, 1], ["first", "second"])
            axes.set_xlim(-0.5, 1.5)
        return Plot(
            drawing.svg(figure, "pair"),
            "Left: where the prompt's tokens came from. Middle and right: one grey line per repetition, "
            "medians as squares.",
        )
