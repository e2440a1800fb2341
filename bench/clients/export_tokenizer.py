"""Write a model's tokenizer as a folder that load tools can read without a network.

python bench/clients/export_tokenizer.py smollm2 /tmp/tokenizer
"""

import json
import sys
from pathlib import Path

from ratoon.engine.open_model import open_model


def main() -> None:
    """Export it."""
    model, folder = sys.argv[1], Path(sys.argv[2])
    checkpoint = open_model(model).checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("tokenizer.json").write_text(checkpoint.tokenizer_json)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
