"""One worker as a process: ``python -m walkserve.worker.process PARENT CONFIG NAME ADDRESS``."""

from __future__ import annotations

import logging
import os
import sys

from walkserve.lifecycle import DEVICE_BROKE, follow_parent
from walkserve.logs import start_logging


def main(parent: str, config_path: str, name: str, address: str) -> int:
    """Run until told to stop, or until the server that started it is gone; 1 if it could not start."""
    follow_parent(int(parent))
    from contextlib import closing
    from pathlib import Path

    import msgspec

    from walkserve.config import ServerConfig

    config = msgspec.json.decode(Path(config_path).read_bytes(), type=ServerConfig)
    start_logging(name, config.log_level, config.log_format)
    from walkserve.engine.broken import DeviceBroke
    from walkserve.messages import ToWorker
    from walkserve.transport.carrier import ArenaCarrier
    from walkserve.transport.pulse import Pulse
    from walkserve.transport.sockets import SocketMailbox
    from walkserve.worker.assemble import Worker

    model = next(one for one in config.models if name in one.workers)
    folder = Path(config.run_folder)
    with (
        SocketMailbox(address, folder, receives=ToWorker) as mailbox,
        closing(ArenaCarrier(address, folder)) as carrier,
        Pulse(folder, address) as pulse,
    ):
        worker = Worker(model, name, address, mailbox, carrier, threads=config.threads, beat=pulse.beat)
        try:
            worker.run()
        except DeviceBroke as error:
            logging.getLogger(__name__).critical(
                "the device broke, and is given up: %s", error, exc_info=error
            )
            os._exit(DEVICE_BROKE)  # at once: to free what is on a broken device may take for ever
    return 0 if worker.loop is not None else 1


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    # What is anybody's business has been put away; to take torch apart object by object can take seconds.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
