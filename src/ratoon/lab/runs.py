"""Beginning a run and going on with one: its manifest, its folder and its servers."""

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ratoon.lab.experiments.settings import Experiment, to_json
from ratoon.lab.machine import describe_machine, describe_versions
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.run_store import RunStore
from ratoon.lab.target import RemoteServers, Servers

Keys = tuple[str | None, str | None]
"""API keys of one and another tenant at a server by URL. No file holds them: to resume, give them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where servers come from: started by us, or by URL."""

    url: str | None = None
    model: str | None = None
    serve_args: str = ""
    block_size: int = 16

    def servers(self, keys: Keys, folder: Path) -> Servers:
        """Return them; logs of those started by us go to `folder`."""
        if self.url:
            return RemoteServers(
                self.url,
                model=self.model or "",
                api_key=keys[0],
                second_api_key=keys[1],
                block_size=self.block_size,
            )
        assert self.model is not None, "a server of ours has a model"
        options = shlex.split(self.serve_args)
        return ManagedServers(self.model, folder, block_size=self.block_size, options=options)


def begin(
    name: str, experiment: Experiment, source: Source, keys: Keys, folder: Path
) -> tuple[RunStore, Servers]:
    """Look at the server, write down all conditions, and return an empty run.

    Raises `UsageError` where the folder holds a run, `LabError` where there is no server or model.
    """
    servers = source.servers(keys, folder)
    settings = to_json(experiment)
    manifest = {
        "experiment": name,
        "command": repeating_command(name, source, settings),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "server": servers.describe(),
        "source": asdict(source),
        "settings": settings,
    }
    return RunStore.create(folder, manifest), servers


def resume(folder: Path, keys: Keys) -> tuple[RunStore, Servers]:
    """Return a run as far as it is, and its servers. Raises `LabError` where there is none."""
    store = RunStore.resume(folder)
    return store, Source(**store.manifest["source"]).servers(keys, folder)


def repeating_command(name: str, source: Source, settings: dict[str, Any]) -> str:
    """Return the command that repeats a run, with every setting spelled out."""
    words = ["ratoon", "lab", name, *([settings["trace"]] if "trace" in settings else [])]
    for option, value in (asdict(source) | settings).items():
        if value not in (None, "") and not option.startswith("trace"):
            words += [
                "--" + option.replace("_", "-"),
                *map(str, value if isinstance(value, list) else [value]),
            ]
    return shlex.join(words)
