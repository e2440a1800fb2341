"""`ratoon serve MODEL`: the OpenAI-compatible HTTP server."""

import argparse
from pathlib import Path

from ratoon.chat.reasoning import REASONING_FORMATS
from ratoon.chat.tool_format import TOOL_FORMATS
from ratoon.cli.adapter_options import adapters, add_adapter_option
from ratoon.cli.engine_options import (
    add_chat_template_option,
    add_engine_options,
    add_model_argument,
    argument,
    engine_settings,
)
from ratoon.errors import UsageError
from ratoon.util.sizes import parse_bytes

EXPLAIN_BLOCKS = 16_384
"""Evicted blocks that a server remembers, to explain misses; some ten megabytes when there are so many."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the model, the server's options and the engine's."""
    add_model_argument(parser)
    add_chat_template_option(parser)
    add_adapter_option(parser, "LoRA adapter that clients choose as model NAME; may be given several times")
    server = parser.add_argument_group("server options")
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    server.add_argument(
        "--port", type=int, default=8000, metavar="N", help="0 takes a free one (default: %(default)s)"
    )
    server.add_argument(
        "--served-model-name", metavar="NAME", help="what clients call the model (default: MODEL)"
    )
    server.add_argument(
        "--tool-parser",
        choices=tuple(TOOL_FORMATS),
        help="how the model writes tool calls (default: as its chat template says)",
    )
    server.add_argument(
        "--reasoning-parser",
        choices=(*REASONING_FORMATS, "none"),
        help="how the model marks its reasoning (default: as its chat template says)",
    )
    server.add_argument(
        "--map-claude-models",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="in /v1/messages, let every claude- name stand for the served model (default: on)",
    )
    server.add_argument(
        "--drop-billing-header",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="in /v1/messages, leave out a billing header, which changes with every request (default: on)",
    )
    server.add_argument(
        "--drain-timeout", type=float, default=30.0, metavar="S",
        help="seconds that running requests may go on after SIGTERM (default: %(default)g)",
    )  # fmt: skip
    server.add_argument(
        "--metrics-compat", choices=("vllm",), help="repeat the metrics under these names too"
    )
    server.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="(default: %(default)s)"
    )
    server.add_argument("--log-prompts", action="store_true", help="write prompts into the log")
    _add_key_options(parser)
    _add_limit_options(parser)
    add_engine_options(parser)
    parser.set_defaults(explain_blocks=EXPLAIN_BLOCKS)


def _add_key_options(parser: argparse.ArgumentParser) -> None:
    keys = parser.add_argument_group("keys and tenants")
    keys.add_argument(
        "--api-keys", type=Path, metavar="FILE", help="TOML file of key digests, tenants and limits"
    )
    keys.add_argument("--api-key", metavar="KEY", help="one key for one tenant; process listings show it")
    keys.add_argument(
        "--admin-key", metavar="KEY", help="opens the admin endpoints where there is no key file"
    )
    keys.add_argument(
        "--secret-file", type=Path, metavar="FILE",
        help="secret behind the tenants' cache salts, made if missing (default: beside the key file)",
    )  # fmt: skip
    keys.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        help="listen to other machines although there is no key",
    )


def _add_limit_options(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-body-bytes", type=argument(parse_bytes), default="4MiB", metavar="SIZE",
                        help="longest request body (default: %(default)s)")  # fmt: skip
    for option, default, text in (
        ("--max-concurrent-requests", 256, "answers running or waiting, of all tenants"),
        ("--max-queued-requests", 256, "answers that wait for their turn"),
        ("--max-concurrent-requests-per-tenant", None, "answers running or waiting, of one tenant"),
        ("--max-prompt-tokens", None, "tokens of one prompt"),
        ("--max-output-tokens", None, "tokens of one answer; longer wishes are cut to it"),
    ):
        shown = "none" if default is None else default
        limits.add_argument(
            option, type=int, default=default, metavar="N", help=f"most {text} (default: {shown})"
        )
    limits.add_argument(
        "--request-deadline", type=float, default=600.0, metavar="S",
        help="seconds after which a request is given up (default: %(default)g)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    try:
        from ratoon.server.http.limits import ServerLimits, TenantLimits
        from ratoon.server.serve import serve
        from ratoon.server.server_settings import ServerSettings
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ratoon"):
            raise
        raise UsageError(
            f"The server needs the package {error.name}, which is not installed.",
            hint="pip install 'ratoon[serve]' brings all that it needs.",
        ) from error

    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        served_model_name=arguments.served_model_name,
        chat_template=arguments.chat_template,
        tool_parser=arguments.tool_parser,
        reasoning_parser=arguments.reasoning_parser,
        map_claude_models=arguments.map_claude_models,
        drop_billing_header=arguments.drop_billing_header,
        api_key=arguments.api_key,
        api_keys=arguments.api_keys,
        admin_key=arguments.admin_key,
        secret_file=arguments.secret_file,
        allow_unauthenticated=arguments.allow_unauthenticated,
        limits=ServerLimits(
            max_body_bytes=arguments.max_body_bytes,
            max_concurrent_requests=arguments.max_concurrent_requests,
            max_queued_requests=arguments.max_queued_requests,
        ),
        tenant_limits=TenantLimits(
            max_concurrent_requests=arguments.max_concurrent_requests_per_tenant,
            max_prompt_tokens=arguments.max_prompt_tokens,
            max_output_tokens=arguments.max_output_tokens,
            request_deadline_s=arguments.request_deadline,
        ),
        drain_timeout_s=arguments.drain_timeout,
        metrics_compat=arguments.metrics_compat,
        log_json=arguments.log_format == "json",
        log_prompts=arguments.log_prompts,
    )
    return serve(arguments.model, engine_settings(arguments), settings, adapters(arguments))
