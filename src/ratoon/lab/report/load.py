"""The report of `Burst` and `Replay`: hits against the ideal, and what they do to TTFT."""

from ratoon.lab.experiments.burst import Burst
from ratoon.lab.experiments.replay import Replay
from ratoon.lab.experiments.settings import from_json
from ratoon.lab.report import load_plots
from ratoon.lab.report.measured_workload import MeasuredWorkload, measured_workloads
from ratoon.lab.report.report import Report, Section, Table, Value, share, write_number
from ratoon.lab.report.samples import failures
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import summarise

STATISTICS = (
    "Ideal: what an infinite cache would hit, worked out from the token ids by the client, in the order "
    "of sending. It counts what requests still running will have computed.",
    "Evicted, then missed: an earlier request with this prefix had finished before this one was sent, "
    "and the tokens were not found. Not yet there: known only from requests that were still running.",
    "Warm: at least half of the prompt was cached; cold: less. TTFT includes waiting for a place in the "
    "server. P95 is given from 20 requests on, P99 from 100.",
)


def report(run: RunStore) -> Report:
    """Analyse a run of `Burst` or `Replay`, whole or interrupted."""
    replay = run.manifest["experiment"] == "replay"
    experiment = from_json(Replay if replay else Burst, run.manifest["settings"])
    workloads = measured_workloads(run, experiment.names())
    failed = failures(run.rows, lambda cell: str(cell["workload"]))
    question = (
        f"{'Recorded traffic' if replay else 'Many requests over few prefixes'}: how much does the cache "
        "hit, how much could it have hit, and what does that do to TTFT?"
    )
    told = [measured for measured in workloads if measured.fates and measured.tells]
    findings = [_finding(measured) for measured in workloads]
    sections = [
        Section(
            "Where the prompt tokens came from",
            "",
            (load_plots.fates(told),) if told else (),
            (_tokens_table(workloads),),
        ),
        Section(
            "Time to first token, cold and warm",
            "",
            (load_plots.ttft(told),) if told else (),
            (_ttft_table(workloads),),
        ),
    ]
    if replay and told:
        sections.append(Section("Over time", "", (load_plots.timeline(told[0]),)))
    return Report(
        "Replay" if replay else "Burst", question, tuple(findings), tuple(sections), failed, STATISTICS
    )


def _finding(measured: MeasuredWorkload) -> str:
    prompt, cached, ideal = measured.prompt_tokens, measured.total("cached"), measured.total("ideal")
    counted = measured.counted_hits
    if not measured.fates:
        return f"{measured.name}: nothing was measured ({measured.state})."
    if not measured.tells:
        hits = "unknown" if counted is None else f"{counted:,}"
        return (
            f"{measured.name}: the server does not tell the cached tokens of each answer; its counters "
            f"say {hits} hits of {prompt:,} prompt tokens, where an infinite cache would have hit "
            f"{ideal:,}."
        )
    text = (
        f"{measured.name}: {cached:,} of {prompt:,} prompt tokens were cached "
        f"({_percent(cached, prompt)}), {_percent(cached, ideal)} of the {ideal:,} that an infinite cache "
        "would have hit"
    )
    if evicted := measured.total("evicted"):
        text += f"; {evicted:,} were evicted, then missed"
    if (not_yet := measured.total("not_yet")) > 0:
        text += f"; {not_yet:,} were not there yet"
    if cached > ideal:
        text += f"; {cached - ideal:,} are more than the token ids explain"
    if measured.end is None:
        return f"{text}. It was interrupted after {len(measured.fates)} requests."
    if counted not in (None, cached):
        return f"{text}. The server's counters contradict its answers: they say {counted:,} hits."
    return f"{text}."


def _percent(part: int, whole: int) -> str:
    percentage = share(part, whole)
    return "none" if percentage is None else f"{write_number(percentage)} %"


def _tokens_table(workloads: list[MeasuredWorkload]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for measured in workloads:
        prompt, ideal = measured.prompt_tokens, measured.total("ideal")
        cached, *fates = (
            measured.total(name) if measured.tells else None
            for name in ("cached", "computed", "evicted", "not_yet")
        )
        hits = measured.counted_hits if cached is None else cached
        rate = None if hits is None else share(hits, prompt)
        rows.append(
            (
                measured.name, len(measured.fates), prompt, cached, measured.counted_hits, ideal, *fates,
                rate, share(ideal, prompt), measured.state,
            )
        )  # fmt: skip
    columns = (
        "workload", "requests", "prompt (tokens)", "hits, answers (tokens)", "hits, counters (tokens)",
        "ideal (tokens)", "computed (tokens)", "evicted, then missed (tokens)", "not yet there (tokens)",
        "hit rate (%)", "ideal hit rate (%)", "state",
    )  # fmt: skip
    return Table("tokens", "Prompt tokens by what became of them.", columns, tuple(rows), main=True)


def _ttft_table(workloads: list[MeasuredWorkload]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for measured in workloads:
        kinds = (("cold", False), ("warm", True)) if measured.tells else (("not told", False),)
        for kind, warm in kinds:
            summary = summarise(measured.ttft_s(warm=warm))
            if summary is None:
                rows.append((measured.name, kind, 0, None, None, None, None))
            else:
                tail = (summary.median, summary.p95, summary.p99, summary.largest)
                rows.append((measured.name, kind, summary.count, *tail))
    columns = ("workload", "prefix", "requests", "TTFT median (s)", "P95 (s)", "P99 (s)", "largest (s)")
    return Table("ttft", "TTFT of cold and warm requests.", columns, tuple(rows), main=True)
