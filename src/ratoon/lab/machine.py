"""What a run ran on: machine, versions, load. Facts only; reports print them as they are."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("ratoon", "numpy", "scipy", "matplotlib")


def describe_machine() -> dict[str, str]:
    """Return processor, cores, memory, system, and how busy the machine was when the run began."""
    load = f"{os.getloadavg()[0]:.2f} over the last minute" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": platform.platform(),
        "load before the run": load,
    }


def describe_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that measured and computed."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        name = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        if name.returncode == 0:
            return name.stdout.strip()
    return platform.processor() or platform.machine()
