"""The OpenAI-compatible HTTP server: JSON, SSE, keys and tenants, limits, metrics. It knows no kernels."""
