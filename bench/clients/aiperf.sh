#!/usr/bin/env bash
# NVIDIA's aiperf, unmodified, against a running server:
#   python -m venv /tmp/aiperf && /tmp/aiperf/bin/pip install aiperf
#   python bench/clients/export_tokenizer.py smollm2 /tmp/tokenizer
#   ratoon serve smollm2
#   bench/clients/aiperf.sh /tmp/aiperf/bin/aiperf /tmp/tokenizer [http://127.0.0.1:8000] [RESULTS_FOLDER]
# The tokenizer sizes the prompts; the server's own counts are reported.
set -euo pipefail
aiperf=$1
tokenizer=$2
server=${3:-http://127.0.0.1:8000}
results=${4:-$(mktemp -d)}
model=$(curl --silent "$server/v1/models" | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')

"$aiperf" profile --model "$model" --url "$server" --endpoint-type chat --streaming \
  --tokenizer "$tokenizer" --use-server-token-count \
  --isl 200 --osl 32 --num-prefix-prompts 2 --prefix-prompt-length 200 \
  --request-count 32 --concurrency 4 --random-seed 1 \
  --extra-inputs ignore_eos:true --artifact-dir "$results"
