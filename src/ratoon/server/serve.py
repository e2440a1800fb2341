"""`serve`: from settings to a listening server, and from SIGTERM to exit status 0.

In order: keys are read, the address is bound, the server listens, the model is loaded beside it (`/ready` tells when), the start
is reported. On SIGTERM or Ctrl-C nothing new is accepted, running requests finish or run out of time, the engine
stops. A second signal does not wait.
"""

import asyncio
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import signal
from math import ceil

import uvicorn

from ratoon.errors import RatoonError, UsageError
from ratoon.server.app import create_app
from ratoon.server.service import Service
from ratoon.server.settings import ServerSettings


def serve(model: str, engine_settings: Mapping[str, object], settings: ServerSettings) -> int:
    """Serve until a signal; return the exit status. Raises `RatoonError` where it cannot start."""
    service = Service(model, engine_settings, settings)
    listener = bind(settings.host, settings.port)
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=ceil(settings.drain_timeout_s) + 1,
    )
    server = Server(config, service)
    service.on_failed_load = server.stop
    server.run(sockets=[listener])
    if service.load_error is not None:
        raise service.load_error
    return 0


class Server(uvicorn.Server):
    """Uvicorn's server with our signals: it exits with 0 and lets the service drain first."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def stop(self) -> None:
        """Begin to stop."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Give running requests their last seconds, then close."""
        self._service.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT, and do not raise them again afterwards as uvicorn would."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UsageError` where the address is taken or not ours."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "there are only 65535 ports"
        raise UsageError(f"The server cannot listen on {host} port {port}: {reason}.", hint="Choose another with --port.") from error
