"""One worker as a process: ``python -m walkserve.worker.process CONFIG NAME ADDRESS``."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from walkserve.config import ServerConfig
from walkserve.lifecycle import configure_child


def main(config_path: str, name: str, address: str) -> None:
    """Run until told to stop, or until the server that started it is gone."""
    config = msgspec.json.decode(Path(config_path).read_bytes(), type=ServerConfig)
    configure_child(config.log_level)
    from walkserve.messages import ToWorker
    from walkserve.transport.carrier import ArenaCarrier
    from walkserve.transport.sockets import SocketMailbox
    from walkserve.worker.assemble import Worker

    model = next(one for one in config.models if name in one.workers)
    folder = Path(config.run_folder)
    with (
        SocketMailbox(address, folder, receives=ToWorker) as mailbox,
        closing(ArenaCarrier(address, folder)) as carrier,
    ):
        Worker(model, name, address, mailbox, carrier, threads=config.threads).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
