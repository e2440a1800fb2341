"""The report of `Counterexamples`: predicted and measured hits, case by case."""

from ratoon.lab.experiments.counterexamples import CASES
from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREY, ORANGE
from ratoon.lab.report.report import Plot, Report, Section, Table, Value
from ratoon.lab.report.samples import Sample, failures, good_samples
from ratoon.lab.run_store import RunStore

ROLES = ("cold", "control", "probe")

REASONS = Table("reasons", "Why each probe hits what it hits.", ("case", "reason"), tuple(CASES.items()))


def report(run: RunStore) -> Report:
    """Analyse a run of `Counterexamples`, whole or interrupted."""
    asked = {(sample["cell"]["case"], sample["role"]): sample for sample in good_samples(run.rows)}
    failed = failures(run.rows, lambda cell: str(cell["case"]))
    whole = [case for case in CASES if all((case, role) in asked for role in ROLES)]
    passed = [case for case in whole if _passed(case, asked)]
    findings = [
        f"{len(passed)} of {len(CASES)} cases pass: every request hit exactly what its token ids predict."
    ]
    wrong = [case for case in whole if case not in passed]
    findings += [f"Case “{case}” fails: what was found is not what was predicted." for case in wrong]
    findings += [f"Case “{case}” could not be measured." for case in CASES if case not in whole]
    return Report(
        "Counterexamples",
        "When must a request not hit although it looks alike, and what does the full hit hit?",
        tuple(findings),
        (Section("Cases", "", (_plot(asked),) if asked else (), (_table(asked), REASONS)),),
        (*failed, *(f"{case}: other hits than predicted" for case in wrong)),
        (
            "Predicted: a model of an infinite cache, built from the token ids by the client, which "
            "knows blocks and namespaces and nothing of the server. Measured: differences of the "
            "server's counters, and what the answer itself tells; a case passes only where both equal "
            "the prediction, for all three requests.",
            "The known prompt is asked twice: cold, and again as the control, which shows that it is in "
            "the cache when the probe is asked (before the flood, where there is one).",
        ),
    )


Asked = dict[tuple[str, str], Sample]


def _passed(case: str, asked: Asked) -> bool:
    return all(asked[case, role].as_expected for role in ROLES)


def _table(asked: Asked) -> Table:
    rows: list[tuple[Value, ...]] = []
    for case in CASES:
        samples = [asked.get((case, role)) for role in ROLES]
        cells = [value for sample in samples for value in _prediction_and_measure(sample)]
        verdict = "failed to run" if None in samples else "pass" if _passed(case, asked) else "FAIL"
        rows.append((case, *cells, verdict))
    columns = (
        "case", "cold: predicted", "cold: measured", "control: predicted", "control: measured",
        "probe: predicted", "probe: measured", "verdict",
    )  # fmt: skip
    return Table(
        "counterexamples", "Cached prompt tokens, predicted and measured.", columns, tuple(rows), main=True
    )


def _prediction_and_measure(sample: Sample | None) -> tuple[Value, Value]:
    if sample is None:
        return (None, None)
    measured: Value = sample.hit_tokens
    if sample.contradicts_itself:
        measured = f"counters {sample.hit_tokens:,}, answer {sample.answer.cached_tokens:,}"
    return (sample["expected_tokens"], measured)


def _plot(asked: Asked) -> Plot:
    with drawing.style():
        figure, grid = drawing.panels(2, height=3.4, share_y=True)
        titles = ("Control: the known prompt again", "Probe")
        for axes, role, title in zip(grid, ROLES[1:], titles, strict=True):
            for place, case in enumerate(CASES):
                sample = asked.get((case, role))
                if sample is None:
                    axes.text(0, place, "failed to run", va="center", color=ORANGE)
                    continue
                axes.plot(sample["expected_tokens"], place, "o", ms=13, mfc="none", mec=GREY, mew=1.6)
                if sample.hit_tokens is not None:
                    axes.plot(
                        sample.hit_tokens,
                        place,
                        "o" if sample.as_expected else "X",
                        ms=7,
                        color=BLUE if sample.as_expected else ORANGE,
                    )
                axes.hlines(place, 0, sample.answer.prompt_tokens, color="#dddddd", lw=5, zorder=0)
            axes.set_title(title)
            axes.set_xlabel("cached prompt tokens")
            axes.grid(visible=False, axis="y")
        grid[0].set_yticks(range(len(CASES)), list(CASES))
        grid[0].set_ylim(len(CASES) - 0.5, -0.5)
        return Plot(
            drawing.svg(figure, "counterexamples"),
            "Rings: predicted from the token ids. Dots: measured, as predicted (blue); crosses: measured "
            "otherwise (orange). Light bars: the prompt's length.",
        )
