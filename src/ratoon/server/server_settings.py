"""`ServerSettings`: everything `ratoon serve` can be told besides the engine's own settings."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from ratoon.errors import UsageError
from ratoon.server.http.limits import ServerLimits, TenantLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Raises `UsageError` where the settings contradict each other or have no meaning."""

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None
    """What clients call the model; the name it was started with if None."""
    chat_template: Path | None = None
    """A file with the template for chat; the model's own if None."""
    tool_parser: str | None = None
    """The format of tool calls; that of the chat template if None."""
    reasoning_parser: str | None = None
    """The format of reasoning, or `none`; that of the chat template if None."""
    map_claude_models: bool = True
    """Whether every `claude-` name stands for the served model in `/v1/messages`."""
    drop_billing_header: bool = True
    """Whether a billing header at the head of a system prompt in `/v1/messages` is left out."""
    api_key: str | None = None
    """One key for one tenant."""
    api_keys: Path | None = None
    """A key file with tenants; see `ratoon.server.tenants`."""
    admin_key: str | None = None
    """Opens the admin endpoints where there is no key file to name its digest."""
    secret_file: Path | None = None
    """Where the secret behind the tenants' salts lies; beside the key file if None."""
    allow_unauthenticated: bool = False
    """Serve other machines although there is no key."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    tenant_limits: TenantLimits = field(default_factory=TenantLimits)
    drain_timeout_s: float = 30.0
    """How long running requests may go on after SIGTERM."""
    metrics_compat: str | None = None
    log_json: bool = False
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"A port is a number from 0 to 65535, not {self.port}.")
        if not 0 <= self.drain_timeout_s < float("inf"):
            raise UsageError(f"The drain timeout must be a number of at least 0, not {self.drain_timeout_s}.")
        if self.api_keys is not None and (self.api_key is not None or self.admin_key is not None):
            raise UsageError("Keys come from a key file or from options, not from both.")
        has_keys = self.api_keys is not None or self.api_key is not None
        if not has_keys and not self.allow_unauthenticated and not is_loopback(self.host):
            raise UsageError(
                f"Without keys the server listens on this machine only, not on {self.host}.",
                hint="Give --api-keys FILE, or say --allow-unauthenticated if everybody may use it.",
            )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    A name other than `localhost` might be anything.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
