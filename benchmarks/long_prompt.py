"""What eight readers notice of a long prompt that somebody else sends.

``walkserve serve`` with its defaults, the 8 x 512 model of ``orpheus_checkpoint.py``, and a family whose
client gets every word as it is drawn (``reading_family.py``). Eight requests decode, all on one WebSocket; a
gap is the time between two words of one of them. After a while a prompt of 4,000 tokens arrives. Its run's
figure is the 95th percentile of all gaps until its own first word, over the median gap of the same run before
it came. The same is measured with splitting off, by a token budget that no prompt exceeds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import reading_family
from orpheus_checkpoint import make_checkpoint
from serving import serving

from walkserve_sdk.client import AsyncClient

HERE = Path(__file__).parent
AIM = 3.0
MODEL = "reading:bench"
READERS, READER_TOKENS, READER_MOST = 8, 32, 1200
PROMPT_TOKENS = 4000
BEFORE = 10
"""Words of each reader that are not counted, and then so many that are, before the prompt comes."""
QUIET = 60
START_S = 300
OFF = 1_000_000
"""A token budget that splits nothing."""


@dataclass(frozen=True)
class Run:
    """Milliseconds between words, without the prompt and while it is read; seconds to its first word."""

    quiet_ms: float
    p95_ms: float
    worst_ms: float
    gaps: int
    first_s: float

    @property
    def ratio(self) -> float:
        return self.p95_ms / self.quiet_ms


class Reader:
    """One request that decodes, and when each of its words came."""

    def __init__(self) -> None:
        self.came: list[float] = []

    async def read(self, session: Any, seed: int) -> None:
        options = {"prompt_tokens": READER_TOKENS, "max_tokens": READER_MOST, "seed": seed}
        async for _ in session.generate(MODEL, **options):
            self.came.append(time.perf_counter())
        raise RuntimeError(f"reader {seed} came to its end before the prompt was read; give it more tokens")

    def gaps(self, began: float, ended: float) -> list[float]:
        """Milliseconds of those that lie, in part, between two times."""
        pairs = zip(self.came, self.came[1:], strict=False)
        return [1000 * (later - sooner) for sooner, later in pairs if later > began and sooner < ended]


async def measure_one(url: str, seed: int) -> Run:
    """Eight readers, a prompt, and all of them gone again."""
    async with AsyncClient(url).connect() as session:
        readers = [Reader() for _ in range(READERS)]
        reading = [asyncio.create_task(one.read(session, seed + n)) for n, one in enumerate(readers)]

        async def all_have(words: int) -> float:
            while min(len(one.came) for one in readers) < words:
                for task in reading:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.005)
            return time.perf_counter()

        quiet_from = await all_have(BEFORE)
        asked = await all_have(BEFORE + QUIET)
        options = {"prompt_tokens": PROMPT_TOKENS, "max_tokens": 1, "seed": seed}
        async for _ in session.generate(MODEL, **options):
            pass
        first = time.perf_counter()
        await all_have(max(len(one.came) for one in readers) + 1)  # whoever waited for it has gone on
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    quiet = [gap for one in readers for gap in one.gaps(quiet_from, asked)]
    meanwhile = [gap for one in readers for gap in one.gaps(asked, first)]
    p95 = statistics.quantiles(meanwhile, n=20, method="inclusive")[-1]
    return Run(statistics.median(quiet), p95, max(meanwhile), len(meanwhile), first - asked)


def measure(folder: Path, budget: str, runs: int) -> tuple[list[Run], list[dict[str, Any]]]:
    """Some runs of one server, and the token budget it told."""
    with server(folder, budget) as url:
        (model,) = httpx.get(f"{url}/v1/server", timeout=30).json()["models"]
        told = [each for worker in model["workers"] for each in worker["token_budgets"]]
        found = []
        for n in range(runs):
            asyncio.run(wait_until_idle(url))
            found.append(asyncio.run(measure_one(url, 100 * n)))
            print(f"token budget {budget}, run {n + 1}: {found[-1].ratio:.2f}", file=sys.stderr)
    return found, told


async def wait_until_idle(url: str) -> None:
    """Who was there before has been let go of."""
    async with httpx.AsyncClient() as client:
        while (await client.get(f"{url}/v1/server", timeout=60)).json()["open_requests"]:
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def server(folder: Path, budget: str) -> Iterator[str]:
    """``walkserve serve`` of the reading family, from ready to its end; gives its address."""
    with tempfile.TemporaryDirectory() as plugin:
        reading_family.install(Path(plugin))
        paths = [plugin, str(HERE), os.environ.get("PYTHONPATH", "")]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        with serving(
            f"{MODEL}={folder}", "--token-budget", budget, environ=environ, starts_s=START_S, ends_s=60
        ) as running:
            yield running.url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each, after one that warms up")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "walkserve-benchmark-orpheus",
        help="of the checkpoint, which is made there if it is not; 0.7 GB",
    )
    asked = parser.parse_args()
    make_checkpoint(asked.folder)
    found: dict[str, list[Run]] = {}
    budgets = {}
    for name, budget in (("split", "auto"), ("whole", str(OFF))):
        runs, budgets[name] = measure(asked.folder, budget, asked.runs + 1)
        found[name] = runs[1:]
    print(f"{'':<8}{'gap, ms':>9}{'p95 meanwhile':>15}{'worst':>9}{'p95 / gap':>11}{'first word, s':>15}")
    for name, runs in found.items():
        medians = [statistics.median(values) for values in zip(*map(row, runs), strict=True)]
        cells = zip(medians, (9, 15, 9, 11, 15), (1, 1, 1, 2, 1), strict=True)
        print(f"{name:<8}" + "".join(f"{value:>{width}.{digits}f}" for value, width, digits in cells))
    steps = [(each["context"], each["tokens"]) for one in budgets["split"] for each in one["beside"]]
    words = ", ".join(f"{tokens} up to {context:,}" for context, tokens in steps)
    print(f"aim: p95 / gap at most {AIM:g} split, and not whole; tokens of the prompt in one batch: {words}")
    ratios = {name: round(statistics.median(run.ratio for run in runs), 2) for name, runs in found.items()}
    every = {name: [asdict(run) for run in runs] for name, runs in found.items()}
    print(
        json.dumps({"benchmark": "long_prompt", "aim": AIM, "ratio": ratios, "budget": steps, "runs": every})
    )


def row(run: Run) -> tuple[float, ...]:
    """As the table has it."""
    return run.quiet_ms, run.p95_ms, run.worst_ms, run.ratio, run.first_s


if __name__ == "__main__":
    main()
