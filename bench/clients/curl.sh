#!/usr/bin/env bash
# The README's curl commands against a running server: bench/clients/curl.sh [http://127.0.0.1:8000]
set -euo pipefail
server=${1:-http://127.0.0.1:8000}
json='Content-Type: application/json'

ask() { curl --fail-with-body --silent --show-error "$@"; echo; }

ask "$server/v1/models"
ask "$server/v1/chat/completions" -H "$json" -d '{
  "max_tokens": 30, "temperature": 0,
  "messages": [{"role": "user", "content": "What is a ratoon crop?"}]}'
ask --no-buffer "$server/v1/chat/completions" -H "$json" -d '{
  "max_tokens": 10, "temperature": 0, "stream": true, "stream_options": {"include_usage": true},
  "messages": [{"role": "user", "content": "What is a ratoon crop?"}]}'
ask "$server/v1/completions" -H "$json" -d '{"prompt": "The capital of France is", "max_tokens": 5}'
ask "$server/tokenize" -H "$json" -d '{"prompt": "The capital of France is"}'
for path in health ready version; do ask "$server/$path"; done
ask "$server/metrics" | grep '^ratoon_prefix_cache'
