"""How long a user waits for ``walkserve list-models`` and ``walkserve --help``, in a fresh process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

RUNS = 10
AIM_S = 0.3
ASKS = (["list-models"], ["--help"])


def wall_s(arguments: list[str]) -> float:
    """One run, interpreter and imports included."""
    program = "import sys; from walkserve.cli import main; sys.exit(main())"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    medians = {}
    print(f"{'walkserve':<14}{'median':>9}{'best':>9}{'worst':>9}   (seconds, {RUNS} runs, aim < {AIM_S})")
    for arguments in ASKS:
        wall_s(arguments)  # the first one fills the file system's cache
        times = sorted(wall_s(arguments) for _ in range(RUNS))
        name = " ".join(arguments)
        medians[name] = round(statistics.median(times), 3)
        print(f"{name:<14}{medians[name]:>9.3f}{times[0]:>9.3f}{times[-1]:>9.3f}")
    print(json.dumps({"benchmark": "list_models", "runs": RUNS, "median_s": medians, "aim_s": AIM_S}))


if __name__ == "__main__":
    main()
