"""Which cores the engine computes on: how many threads it starts, and whether each keeps to a core.

The threads of the native ops, of which the engine's own is the first, wait for each other many times in a
step. With a thread for every core, each keeps to its own, so that they always run at the same time. With
fewer threads, or beside another process that has claimed one of the cores, the operating system chooses.
"""

import os
import socket
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

SOCKET_PREFIX = "\0ratoon-core-"
"""Linux's abstract socket names: one process can hold each, and it is free again when the process ends."""


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: by affinity and by the quota of its cgroups.

    `root` is where `/proc` and `/sys` are looked for.
    """
    if hasattr(os, "sched_getaffinity"):
        return max(1, int(min([len(os.sched_getaffinity(0)), *_quotas(root)])))
    return os.cpu_count() or 1


class CoreClaim:
    """The right of an engine's threads to keep to one core each, from the moment it is made.

    It `is_held` where `num_threads` are as many as the cores of this process's affinity and none of these is
    claimed by another engine, of this process or another one. Processes in different network namespaces do
    not see each other's claims. `close` gives the cores free, at the latest when the claim is collected.
    """

    def __init__(self, num_threads: int, *, prefix: str = SOCKET_PREFIX) -> None:
        self._first_core: int | None = None
        if not hasattr(os, "sched_setaffinity"):
            return
        cores = sorted(os.sched_getaffinity(0))
        sockets = _claimed(cores, prefix) if num_threads == len(cores) else None
        if sockets is not None:
            self._first_core = cores[0]
            self.close = weakref.finalize(self, _close_all, sockets)

    @property
    def is_held(self) -> bool:
        """Whether the engine's threads keep to cores of their own."""
        return self._first_core is not None

    def keep_first_thread(self) -> None:
        """Keep the calling thread, the first of the engine's, to the first core, if the claim is held."""
        if self._first_core is not None:
            os.sched_setaffinity(0, {self._first_core})


def _claimed(cores: Iterable[int], prefix: str) -> list[socket.socket] | None:
    """Take a socket name for every core, or none."""
    sockets: list[socket.socket] = []
    try:
        for core in cores:
            sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            sockets[-1].bind(f"{prefix}{core}")
    except OSError:
        _close_all(sockets)
        return None
    return sockets


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in cores, of the control groups of this process and of those around them.

    In a container the path that `/proc/self/cgroup` names may lie outside of what is mounted; the limit then
    stands in the mounted folder itself.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                folders, quota = ["sys/fs/cgroup"], _quota_v2
            elif "cpu" in controllers.split(","):
                folders, quota = [f"sys/fs/cgroup/{name}" for name in ("cpu", controllers)], _quota_v1
            else:
                continue
            group = PurePosixPath(path.lstrip("/"))
            for folder in folders:
                for each in (group, *group.parents):
                    with suppress(OSError, ValueError):
                        yield quota(root / folder / each)


def _quota_v2(group: Path) -> float:
    """Return a group's quota. Raises `ValueError` where it has none, `OSError` where the group is missing."""
    quota, period = (group / "cpu.max").read_text().split()
    return int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    if quota < 0:
        raise ValueError("no quota")
    return quota / int((group / "cpu.cfs_period_us").read_text())
