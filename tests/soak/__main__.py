"""``python -m tests.soak``: the soak by hand, its figures as a table and as one line of JSON."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.soak.report import json_line, table
from tests.soak.serving import soaking_server
from tests.soak.soak import Size, Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=Size.requests, metavar="N")
    parser.add_argument("--in-flight", type=int, default=Size.in_flight, metavar="N")
    parser.add_argument("--seed", type=int, default=Size.seed, metavar="N", help="decides the order")
    parser.add_argument("--log", type=Path, help="where the server's log goes")
    given = parser.parse_args()
    size = Size(given.requests, given.in_flight, given.seed)
    with tempfile.TemporaryDirectory() as folder, soaking_server(Path(folder), log=given.log) as server:
        soaked = asyncio.run(Soak(server.url, server.temporary, size).run())
        print(table(soaked))
        print(json_line(soaked), flush=True)
    return 1 if soaked.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
