"""One server: the HTTP server in this process, the conductor and the workers as children that are watched."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket

import msgspec
import uvloop

from walkserve.config import ModelConfig, ServerConfig, usable_cores, worker_threads
from walkserve.descriptions import surface_routes
from walkserve.errors import SettingError
from walkserve.extensions import Extensions
from walkserve.http.run import bind
from walkserve.http.settings import HttpSettings
from walkserve.plugins import load_model
from walkserve.supervisor.life import live
from walkserve.transport.rundir import run_folder

__all__ = ["serve"]


log = logging.getLogger(__name__)


def serve(
    models: tuple[ModelConfig, ...],
    *,
    host: str,
    port: int,
    http: HttpSettings,
    extensions: Extensions,
    log_level: str,
    log_format: str,
    drain_timeout_s: float,
    stuck_after_s: float,
) -> int:
    """Serve until told to stop; the exit code.

    Raises:
        SettingError: The port is taken, or the host is not this machine's.
    """
    with _bound(host, port) as bound, run_folder() as folder:
        if http.keys is None and not _is_loopback(bound):
            log.warning(
                "%s is reachable from elsewhere, and without API keys whoever reaches it may use it; "
                "give --api-key-file",
                host,
            )
        workers = [name for model in models for name in model.workers]
        config = ServerConfig(
            models=models,
            run_folder=str(folder),
            log_level=log_level,
            threads=worker_threads(usable_cores(), len(workers)),
            log_format=log_format,
            drain_timeout_s=drain_timeout_s,
            stuck_after_s=stuck_after_s,
        )
        path = folder / "config.json"
        path.write_bytes(msgspec.json.encode(config))
        declared = {model.name: load_model(model.family, model.plugins)(model.checkpoint) for model in models}
        for name, model in declared.items():
            for surface in model.surfaces():
                if surface not in surface_routes(type(model), extensions.surfaces):
                    log.warning(
                        "%s has the surface %r, for which no extension here has a route", name, surface
                    )
        return uvloop.run(live(config, path, declared, bound, http, extensions))


def _is_loopback(bound: socket.socket) -> bool:
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def _bound(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except (OSError, UnicodeError) as error:  # of a name that no host could have
        why = getattr(error, "strerror", None) or error
        cure = "--host" if _is_the_hosts_fault(error) else "--port"
        raise SettingError(f"cannot listen on {host}:{port}: {why}; choose another {cure}") from None


def _is_the_hosts_fault(error: OSError | UnicodeError) -> bool:
    if isinstance(error, socket.gaierror | UnicodeError):
        return True
    return error.errno in (errno.EADDRNOTAVAIL, errno.EINVAL)  # EINVAL: fe80::1 without its interface
