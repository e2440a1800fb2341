#!/usr/bin/env bash
# schemathesis against a running server; it must find no 5xx:
#   python -m venv /tmp/schemathesis && /tmp/schemathesis/bin/pip install schemathesis
#   ratoon serve smollm2 --api-key bench --admin-key bench --max-output-tokens 4
#   bench/clients/schemathesis.sh /tmp/schemathesis/bin/schemathesis [http://127.0.0.1:8000]
set -euo pipefail
"$1" run "${2:-http://127.0.0.1:8000}/openapi.json" -H 'Authorization: Bearer bench' \
  --checks not_a_server_error --max-examples 100 --seed 1 --suppress-health-check all --continue-on-failure
