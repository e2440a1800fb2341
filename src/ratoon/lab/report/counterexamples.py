"""The report of `Counterexamples`: predicted and measured hits, case by case."""

from ratoon.lab.experiments.counterexamples import CASES
from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREY, ORANGE
from ratoon.lab.report.report import Plot, Report, Section, Table, Value
from ratoon.lab.report.samples import Sample, failures, good_samples
from ratoon.lab.run_store import RunStore

ROLES = ("cold", "control", "probe")
WRONG = "FAIL: other hits than predicted"

REASONS = Table("reasons", "Why each probe hits what it hits.", ("case", "reason"), tuple(CASES.items()))


def report(run: RunStore) -> Report:
    """Analyse a run of `Counterexamples`, whole or interrupted."""
    asked = {(sample["cell"]["case"], sample["role"]): sample for sample in good_samples(run.rows)}
    failed = failures(run.rows, lambda cell: str(cell["case"]))
    verdicts = {case: _verdict(case, asked) for case in CASES}
    num_passed = list(verdicts.values()).count("pass")
    findings = [
        f"In {num_passed} of {len(CASES)} cases every request hit exactly what its token ids predict."
    ]
    findings += [f"Case “{case}”: {verdict}." for case, verdict in verdicts.items() if verdict != "pass"]
    wrong = [case for case, verdict in verdicts.items() if verdict == WRONG]
    return Report(
        "Counterexamples",
        "When must a request not hit although it looks alike, and what does the full hit hit?",
        tuple(findings),
        (Section("Cases", "", (_plot(asked),) if asked else (), (_table(asked), REASONS)),),
        (*failed, *(f"{case}: {WRONG}" for case in wrong)),
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


def _verdict(case: str, asked: Asked) -> str:
    if any((case, role) not in asked for role in ROLES):
        return "failed to run"
    samples = [asked[case, role] for role in ROLES]
    if any(sample.hit_tokens is None for sample in samples):
        return "the server does not tell"
    return "pass" if all(sample.as_expected for sample in samples) else WRONG


def _table(asked: Asked) -> Table:
    rows: list[tuple[Value, ...]] = []
    for case in CASES:
        samples = [asked.get((case, role)) for role in ROLES]
        cells = [value for sample in samples for value in _prediction_and_measure(sample)]
        rows.append((case, *cells, _verdict(case, asked)))
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
                    marker, colour = ("o", BLUE) if sample.as_expected else ("X", ORANGE)
                    axes.plot(sample.hit_tokens, place, marker, ms=7, color=colour)
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
