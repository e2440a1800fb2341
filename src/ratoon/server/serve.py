"""`serve`: from settings to a listening server, and from SIGTERM to exit status 0.

In order: keys are read, the address is bound, the server listens, the model is loaded beside it (`/ready`
tells when), the start is reported. On SIGTERM or Ctrl-C nothing new is accepted, running requests finish or
run out of time, the engine stops. A second signal does not wait.
"""

import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from secrets import token_bytes

import uvicorn

from ratoon.engine.config import EngineConfig
from ratoon.errors import UsageError
from ratoon.server.http.app import create_app
from ratoon.server.served_model import load_served_model
from ratoon.server.server_settings import ServerSettings
from ratoon.server.service import Service
from ratoon.server.tenants import (
    SECRET_BYTES,
    KeyRing,
    SaltDeriver,
    load_secret,
    read_key_file,
    single_tenant,
)

STEP_GRACE_S = 30
"""Longest wait for the step under way when the running requests' time is up."""


def serve(
    model: str,
    engine_settings: Mapping[str, object],
    settings: ServerSettings,
    adapters: Mapping[str, Path],
) -> int:
    """Serve until a signal; return the exit status. Raises `RatoonError` where it cannot start."""
    config = EngineConfig.from_settings(engine_settings)
    name = settings.served_model_name or model
    if name in adapters:
        raise UsageError(f"The model and an adapter are both called {name!r}.")
    keys = read_keys(settings)
    listener = bind(settings.host, settings.port)

    def report_start() -> None:
        if service.load_error is not None:
            server.should_exit = True
            return
        lines = [
            *service.model.description,
            f"isolation   {keys.describe()}",
            f"listening   {address_of(listener)}",
        ]
        print("\n".join(lines), file=sys.stderr, flush=True)

    service = Service(
        lambda: load_served_model(
            model,
            name,
            config,
            adapters,
            settings.chat_template,
            tool_parser=settings.tool_parser,
            reasoning_parser=settings.reasoning_parser,
        ),
        keys,
        settings,
        name=name,
        log=sys.stderr,
        on_load=report_start,
    )
    server = Server(service)
    server.run(sockets=[listener])
    if service.load_error is not None:
        raise service.load_error
    return 0


class Server(uvicorn.Server):
    """Uvicorn's server with our signals: it lets the service drain first, and exits with 0."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=ceil(service.settings.drain_timeout_s) + STEP_GRACE_S,
            )
        )
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Give running requests their last seconds, then close."""
        self._service.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT, and do not raise them again afterwards as uvicorn would.

        Only the main thread can take signals; elsewhere whoever runs the server stops it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self.handle_exit) for number in taken]
        try:
            yield
        finally:
            for number, handler in zip(taken, before, strict=True):
                signal.signal(number, handler)


def read_keys(settings: ServerSettings) -> KeyRing:
    """Return who may come in. Raises `UsageError` for a key file or secret that is not right."""
    secret_file = settings.secret_file
    if secret_file is None and settings.api_keys is not None:
        secret_file = settings.api_keys.with_name(settings.api_keys.name + ".secret")
    salts = SaltDeriver(token_bytes(SECRET_BYTES) if secret_file is None else load_secret(secret_file))
    if settings.api_keys is not None:
        return read_key_file(settings.api_keys, salts, settings.tenant_limits)
    return single_tenant(
        salts, settings.tenant_limits, api_key=settings.api_key, admin_key=settings.admin_key
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UsageError` where the address is taken, or not ours."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"The server cannot listen on {host} port {port}: {error.strerror}.",
            hint="Choose another address with --host and --port.",
        ) from error


def address_of(listener: socket.socket) -> str:
    """Return the URL at which the server answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
