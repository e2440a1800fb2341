"""A thread for every core keeps to its own; the system places fewer, and those of a second engine."""

import os
from pathlib import Path
from threading import Thread

import pytest

from ratoon.engine.cores import CoreClaim, usable_cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")


@pytest.fixture
def prefix() -> str:
    """Names that no other process claims."""
    return f"\0ratoon-test-{os.getpid()}-core-"


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def cores_of_a_thread(claim: CoreClaim) -> set[int]:
    found: list[set[int]] = []

    def run() -> None:
        claim.keep_first_thread()
        found.append(os.sched_getaffinity(0))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_with_a_thread_for_every_core_the_first_keeps_to_the_first_core(prefix: str) -> None:
    claim = CoreClaim(num_cores(), prefix=prefix)
    before = os.sched_getaffinity(0)
    assert claim.is_held
    assert cores_of_a_thread(claim) == {min(before)}
    assert os.sched_getaffinity(0) == before, "only the calling thread is kept"


def test_with_more_or_fewer_threads_than_cores_the_system_chooses(prefix: str) -> None:
    for claim in (CoreClaim(num_cores() + 1, prefix=prefix), CoreClaim(num_cores() - 1, prefix=prefix)):
        assert not claim.is_held
        assert cores_of_a_thread(claim) == os.sched_getaffinity(0)


def test_a_second_engine_does_not_crowd_onto_the_cores_of_the_first(prefix: str) -> None:
    first = CoreClaim(num_cores(), prefix=prefix)
    second = CoreClaim(num_cores(), prefix=prefix)
    assert first.is_held
    assert not second.is_held
    assert cores_of_a_thread(second) == os.sched_getaffinity(0)
    del first
    assert CoreClaim(num_cores(), prefix=prefix).is_held, "a claim ends with its engine"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("100000 100000", 1), ("50000 100000", 1), ("199999 100000", 1), ("max 1000", None)],
)
def test_a_quota_of_cgroup_v2_limits_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota}\n"})
    assert usable_cores(root) == (cores or num_cores())


def test_the_tightest_quota_of_the_groups_around_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/slice/unit\n",
        "sys/fs/cgroup/slice/unit/cpu.max": "max 100000\n",
        "sys/fs/cgroup/slice/cpu.max": "100000 100000\n",
    }
    assert usable_cores(write(tmp_path, files)) == 1


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_cgroup_v1_limits_the_cores(tmp_path: Path, folder: str) -> None:
    """In a container, the path names a group that is not mounted; the limit stands in the mounted folder."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/0a1b\n3:cpu,cpuacct:/docker/0a1b\n0::/\n",
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": "120000\n",
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": "100000\n",
    }
    assert usable_cores(write(tmp_path, files)) == 1
    (tmp_path / f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us").write_text("-1\n")
    assert usable_cores(tmp_path) == num_cores()


def test_without_control_groups_every_core_of_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == num_cores()
