"""What it costs that a branch lies in pages: the share of a step that gathers them, and of attention itself.

The language model of ``orpheus_checkpoint.py`` in one process and one thread, with the server's own engine,
batch, cache and attention; no conductor, no codec. Each row has its context and what it has sampled; the keys
and values are random, which costs what real ones do. A step is submitted again and again and never committed,
so each does the same. The pool has a quarter more pages than the rows need, and they lie in it

* at once: each row's as it gets them when it asks for all of them;
* in turns: as in life, each row asks for a page when it needs one, between the others;
* shuffled: the worst that can be.

A figure is the best of its steps in CPU time, and layouts take turns. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from orpheus_checkpoint import FIRST_CODE, make_checkpoint

from walk_plugin_orpheus import Orpheus
from walkserve.cache.paged import PagedCache
from walkserve.cache.pages import PageTable
from walkserve.engine.attention import PagedAttention, torch_sdpa
from walkserve.engine.held import Held, hold
from walkserve.engine.local import LocalEngine
from walkserve.engine.rows import Row
from walkserve.worker.live import Branch
from walkserve_sdk import Checkpoint

ROWS, CONTEXTS = (1, 8, 32), (128, 512, 1500, 3500)
PIECE = 512
"""Tokens of prefill on a context."""
SPARE = 1.25
"""Pages of the pool, for each one that is used."""
LAYOUTS = ("at once", "in turns", "shuffled")
PARTS = ("plan", "write", "gather", "product")
"""Of a step: batches planned, K and V written, K and V gathered, and scaled dot products."""


@dataclass
class Stopwatch:
    """CPU time of what it has wrapped, by part."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def wrap(self, part: str, where: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(where, name)

        def timed(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **named)
            finally:
                self.spent[part] += time.thread_time() - began

        setattr(where, name, timed)

    def wrap_all(self) -> None:
        self.wrap("plan", PagedAttention, "__init__")
        self.wrap("write", PagedAttention, "_write")
        self.wrap("gather", PagedCache, "gather")
        self.wrap("product", torch_sdpa, "scaled_dot_product_attention")


@dataclass(frozen=True)
class Case:
    """So many rows with so much context each; one token each to decode, or a piece to prefill."""

    rows: int
    context: int
    tokens: int = 1


def cases(quick: bool) -> list[Case]:
    decodes = [Case(rows, context) for rows in ROWS for context in CONTEXTS]
    if quick:
        decodes = [case for case in decodes if case.rows == 8 and case.context in (128, 1500)]
    return [*decodes, Case(1, 3000, PIECE)]


def lay_out(held: Held, case: Case, layout: str) -> list[PageTable]:
    """A pool of its own for the case, its rows' pages taken, their context committed."""
    size = held.component.kv.page_size  # type: ignore[union-attr]
    pages = -(-(case.context + case.tokens) // size)
    old = held.cache
    assert old is not None
    held.cache = PagedCache(
        old.shape, pages=int(case.rows * pages * SPARE), page_size=size, device="cpu", dtype=held.dtype
    )
    held.cache.k.normal_()
    held.cache.v.normal_()
    tables = [held.cache.new_table() for _ in range(case.rows)]
    step = size if layout == "in turns" else case.context
    for start in range(0, case.context, step):
        for table in tables:
            tokens = min(step, case.context - start)
            table.reserve(tokens)
            table.commit(tokens)
    if layout == "shuffled":
        mixed = [page for table in tables for page in table.pages]
        random.Random(0).shuffle(mixed)
        for table in tables:
            table.pages = [mixed.pop() for _ in table.pages]
    return tables


def rows_of(tables: list[PageTable], case: Case) -> list[Row]:
    options = Orpheus.Options(constrain=True)
    made = []
    for index, table in enumerate(tables):
        branch = Branch(table)
        numbers = torch.Generator().manual_seed(index)
        branch.seen = torch.randint(7 * 4096, (case.context,), generator=numbers) + FIRST_CODE
        made.append(
            Row({"ids": [FIRST_CODE] * case.tokens}, branch, options, (index, 0, "", 0), tokens=case.tokens)
        )
    return made


def measure(held: Held, case: Case, deterministic: bool, repeat: int, watch: Stopwatch) -> dict[str, Any]:
    """Milliseconds of the best step by layout, with the parts of that step."""
    engine = LocalEngine({"llama": held}, deterministic=deterministic)
    best: dict[str, dict[str, float]] = {}
    laid = {}
    for layout in LAYOUTS:
        tables = lay_out(held, case, layout)
        laid[layout] = (held.cache, rows_of(tables, case))
    for _ in range(repeat + 1):  # the first is not warm, and never the best
        for layout, (held.cache, rows) in laid.items():
            watch.spent.clear()
            began = time.thread_time()
            engine.submit(("llama", "next"), rows).finish()
            step = time.thread_time() - began
            if layout not in best or step * 1000 < best[layout]["step"]:
                best[layout] = {
                    "step": step * 1000,
                    **{part: watch.spent[part] * 1000 for part in PARTS},
                }
    return {layout: {part: round(ms, 3) for part, ms in parts.items()} for layout, parts in best.items()}


def print_case(name: str, case: Case, found: dict[str, Any]) -> None:
    for layout, parts in found.items():
        shares = "".join(f"{parts[part] / parts['step']:>9.0%}" for part in PARTS)
        print(
            f"{name:<24}{case.rows:>5}{case.context:>9}{case.tokens:>8}  {layout:<9}"
            f"{parts['step']:>9.2f}{parts['gather']:>9.2f}{shares}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=8, metavar="N", help="steps of each, the best counts")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="eight rows only, and fewer contexts")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "walkserve-benchmark-orpheus"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    make_checkpoint(asked.folder)
    watch = Stopwatch()
    watch.wrap_all()
    print(
        f"{'':<24}{'rows':>5}{'context':>9}{'tokens':>8}  {'pages':<9}{'ms':>9}{'gather':>9}"
        + "".join(f"{part:>9}" for part in PARTS)
    )
    results: list[dict[str, Any]] = []
    for dtype in ("float32", "bfloat16") if asked.dtype == "both" else (asked.dtype,):
        held = hold(
            Orpheus.spec.components["llama"],
            {"next"},
            Checkpoint({"main": asked.folder, "snac": asked.folder / "snac"}),
            device=torch.device("cpu"),
            dtype=getattr(torch, dtype),
            pages=lambda shape, size: 1,  # each case brings its own
        )
        for deterministic in (False, True):
            name = dtype + (", deterministic" if deterministic else "")
            for case in cases(asked.quick):
                found = measure(held, case, deterministic, asked.repeat, watch)
                print_case(name, case, found)
                about = {"rows": case.rows, "context": case.context, "tokens": case.tokens}
                results.append({"dtype": dtype, "deterministic": deterministic, **about, "layouts": found})
    print(json.dumps({"benchmark": "gathering", "cases": results}))


if __name__ == "__main__":
    main()
