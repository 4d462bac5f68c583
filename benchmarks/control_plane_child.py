"""One child of ``control_plane.py``: a conductor or worker as the server starts it, or the floor's sender.

``python control_plane_child.py ENGINE STATS ROLE ARGUMENT...``: ENGINE is ``local``, the server's own, or
``null``; STATS is the file a profile goes to, or empty.
"""

from __future__ import annotations

import cProfile
import sys
import time
from pathlib import Path

from msgspec import Struct


class Step(Struct, frozen=True, tag=True):
    """What the floor sends: a whole batch as two columns."""

    tags: list[int]
    tokens: list[int]


def conductor(*arguments: str) -> int:
    from walkserve.conductor.process import main

    return main(*arguments)


def worker(*arguments: str) -> int:
    from walkserve.worker.process import main

    return main(*arguments)


def floor(folder: str, rows: str, turns: str) -> int:
    """One message with all rows of a step, for each step, and nothing else."""
    from walkserve.transport.sockets import SocketMailbox

    with SocketMailbox("floor", Path(folder), receives=Step, high_water=0, linger_s=60) as mailbox:
        tags = list(range(int(rows)))
        tokens = [0] * len(tags)
        began = time.process_time()
        for _ in range(int(turns)):
            tokens = [token + 1 for token in tokens]
            mailbox.send("http", [Step(tags, tokens)])  # type: ignore[list-item]
        print(time.process_time() - began, flush=True)
    return 0


def main(engine: str, stats: str, role: str, *arguments: str) -> int:
    """Run the role to its end."""
    if engine == "null":
        import null_family

        from walkserve.worker import assemble

        assemble.LocalEngine = null_family.NullEngine  # type: ignore[misc, assignment]
    run = {"conductor": conductor, "worker": worker, "floor": floor}[role]
    if not stats:
        return run(*arguments)
    profile = cProfile.Profile()
    try:
        return profile.runcall(run, *arguments)
    finally:
        profile.dump_stats(stats)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
