"""A complete run, as small as one can be, against the real server with the real model."""

from pathlib import Path

from ratoon.lab.bench import Bench
from ratoon.lab.experiments.pair import Pair
from ratoon.lab.experiments.settings import to_json
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.report import pair
from ratoon.lab.report.files import write_files
from ratoon.lab.run_store import RunStore
from ratoon.util.progress import no_progress


def test_a_pair_hits_the_real_cache_exactly_as_its_token_ids_predict(
    smollm2_path: Path, tmp_path: Path
) -> None:
    experiment = Pair(prompt_lens=(170, 175), prefix_len=166, output_len=3, repetitions=1)
    servers = ManagedServers(str(smollm2_path), tmp_path)
    manifest = {
        "experiment": "pair",
        "command": "ratoon lab pair",
        "machine": {},
        "versions": {},
        "server": servers.describe(),
        "settings": to_json(experiment),
    }
    store = RunStore.create(tmp_path, manifest)
    experiment.measure(Bench(servers, store, no_progress))
    report = pair.report(store)
    page = write_files(report, store).read_text()

    assert report.findings[0].startswith("The hit is certain: in one repetition the second request found 160")
    assert not report.failures
    assert store.rows[1]["counted"] == {"queries": 175, "hits": 160}
    assert len(store.rows[1]["answer"]["arrivals_s"]) == 3
    assert "160" in page
    assert "SIGTERM" not in (tmp_path / "server-1.log").read_text()
