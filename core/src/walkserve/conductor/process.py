"""The conductor as a process, ``python -m walkserve.conductor.process CONFIG``, or as a thread's loop."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from walkserve import messages as m
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.config import ModelConfig, ServerConfig
from walkserve.lifecycle import configure_child
from walkserve.plugins import load_model
from walkserve.transport.base import Mailbox

log = logging.getLogger(__name__)

ADDRESS = "conductor"


def served_models(models: Iterable[ModelConfig]) -> dict[str, Served]:
    """The declarations a server needs, by served name."""
    return {
        config.name: Served(config.name, load_model(config.family)(config.checkpoint), config.ranks)
        for config in models
    }


def conduct(state: ConductorState, mailbox: Mailbox) -> None:
    """Hear and say until the server has stopped; then send the workers home."""
    while state.phase != "stopped":
        for message in mailbox.receive(None):
            try:
                state.hear(message)  # type: ignore[arg-type]
            except Exception:  # one bad message fails nobody else
                log.exception("the conductor could not hear %s", type(message).__name__)
        _flush(state, mailbox)
    for served in state.fleet.served.values():
        for worker in served.workers.values():
            if worker.address:
                state.outbox[worker.address].append(m.StopWorker())
    state.tell_state()
    _flush(state, mailbox)


def _flush(state: ConductorState, mailbox: Mailbox) -> None:
    said = dict(state.outbox)
    state.outbox.clear()
    for address, messages in said.items():
        mailbox.send(address, messages)


def main(config_path: str) -> None:
    """Run until told to stop, or until the server that started it is gone."""
    config = msgspec.json.decode(Path(config_path).read_bytes(), type=ServerConfig)
    configure_child(config.log_level)
    from walkserve.transport.sockets import SocketMailbox

    with SocketMailbox(ADDRESS, Path(config.run_folder), receives=m.ToConductor) as mailbox:
        conduct(ConductorState(served_models(config.models)), mailbox)


if __name__ == "__main__":
    main(sys.argv[1])
