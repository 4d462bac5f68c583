"""The conductor, as ``python -m walkserve.conductor.process PARENT CONFIG`` or as a thread's loop."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from walkserve import messages as m
from walkserve.conductor.deadlines import Deadlines
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.config import ModelConfig, ServerConfig
from walkserve.journal.entries import Origin
from walkserve.journal.folder import JournalFolder
from walkserve.lifecycle import follow_parent
from walkserve.logs import start_logging
from walkserve.plugins import find_models, load_model
from walkserve.transport.base import Mailbox, Unsendable
from walkserve_sdk import WalkserveError

log = logging.getLogger(__name__)

ADDRESS = "conductor"
IDLE_S = 1.0
"""How often its loop comes round when nothing happens."""


def served_models(models: Iterable[ModelConfig]) -> dict[str, Served]:
    """The declarations a server needs, by served name."""
    return {
        config.name: Served(
            config.name,
            load_model(config.family, config.plugins)(config.checkpoint),
            config.ranks,
            profiles=config.profile,
            overcommit=config.overcommit,
        )
        for config in models
    }


def journals_of(models: Iterable[ModelConfig]) -> JournalFolder | None:
    """Where journals are written, if they are: one folder for all models of a server."""
    origins = {}
    folder = ""
    for config in models:
        folder = folder or config.journal
        claim = find_models(config.plugins).one(config.family)
        origins[config.name] = Origin(config.family, claim.distribution, claim.version, config.label)
    return JournalFolder(Path(folder), origins) if folder else None


def conduct(state: ConductorState, mailbox: Mailbox, beat: Callable[[], None] = lambda: None) -> None:
    """Hear and say until the server has stopped; then fail what is still open and send the workers home.

    Args:
        beat: Called whenever the loop comes round: whoever hears nothing of it may take it for stuck.
    """
    deadlines = Deadlines(state)
    while state.phase != "stopped":
        beat()
        wait_s = deadlines.wait_s()
        heard = mailbox.receive(IDLE_S if wait_s is None else min(wait_s, IDLE_S))
        for message in heard:
            _hear(state, message)
        deadlines.keep()
        _flush(state, mailbox)
        for message in heard:
            if isinstance(message, m.WorkerLost):
                mailbox.forget(message.address)
    state.fail_all(m.Fault("the server stops", 503, "unavailable", "unavailable"))
    for served in state.fleet.served.values():
        for worker in served.workers.values():
            if worker.address:
                state.outbox[worker.address].append(m.StopWorker())
    state.tell_state()
    _flush(state, mailbox)


def _hear(state: ConductorState, message: m.Message) -> None:
    """One message. A bad one fails the request it is about, where it says so, and nobody else."""
    try:
        if isinstance(message, m.Unreadable):
            state.fail_number(message.number, message.fault)
        else:
            state.hear(message)  # type: ignore[arg-type]
    except Exception:
        kind = type(message).__name__
        log.exception("the conductor could not hear %s", kind)
        state.fail_number(getattr(message, "number", -1), m.Unreadable(kind).fault)


def _flush(state: ConductorState, mailbox: Mailbox) -> None:
    """Say what has gathered. What cannot be sent fails its own request, which is more to say.

    A journal is written before: it has all that anybody was told.
    """
    _write_down(state)
    while state.outbox:
        said = dict(state.outbox)
        state.outbox.clear()
        for address, messages in said.items():
            try:
                mailbox.send(address, messages)
            except Unsendable as error:
                log.error("%s", error)
                for message in error.messages:
                    _fail_unsendable(state, address, message)
        _write_down(state)


def _write_down(state: ConductorState) -> None:
    if state.journals is not None:
        state.journals.flush()


def _fail_unsendable(state: ConductorState, address: str, message: m.Message) -> None:
    fault = m.Fault(f"a {type(message).__name__} of this request cannot be sent", code="unsendable")
    number, tag = getattr(message, "number", None), getattr(message, "tag", None)
    if number is not None:
        state.fail_number(number, fault)
    elif tag is not None:
        state.outbox[address].append(m.RequestFailed(tag, fault))


def main(parent: str, config_path: str) -> int:
    """Run until told to stop, or until the server that started it is gone; 1 if it could not start."""
    follow_parent(int(parent))
    config = msgspec.json.decode(Path(config_path).read_bytes(), type=ServerConfig)
    start_logging(ADDRESS, config.log_level, config.log_format)
    from walkserve.transport.pulse import Pulse
    from walkserve.transport.sockets import SocketMailbox

    folder = Path(config.run_folder)
    with (
        SocketMailbox(ADDRESS, folder, receives=m.ToConductor) as mailbox,
        Pulse(folder, ADDRESS) as pulse,
    ):
        try:
            state = ConductorState(served_models(config.models), journals_of(config.models))
        except WalkserveError as error:
            log.error("%s", error)
            log.debug("where it was raised", exc_info=error)
            return 1
        conduct(state, mailbox, pulse.beat)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
