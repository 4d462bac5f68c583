"""The engine that runs batches where the worker is: one call of one method per batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held
from walkserve.engine.rows import Pending, Row, RowResult

DETERMINISTIC_TILE = 4
"""Rows of matrix products come in multiples of this when batched must equal alone."""


class Finished:
    """A batch whose results are there."""

    def __init__(self, results: list[RowResult]) -> None:
        self._results = results

    def is_ready(self) -> bool:
        return True

    def finish(self) -> list[RowResult]:
        return self._results


class LocalEngine:
    """Runs stateless, stateful and autoregressive components alike: what differs is what a batch holds.

    Args:
        held: The worker's components by name.
        deterministic: Pad batches to tiles and attend row by row, so that batched equals alone.
    """

    def __init__(self, held: Mapping[str, Held], *, deterministic: bool) -> None:
        self._held = held
        self._deterministic = deterministic

    @torch.inference_mode()
    def submit(self, key: tuple[str, str], rows: Sequence[Row]) -> Pending:
        held = self._held[key[0]]
        tile = DETERMINISTIC_TILE if self._deterministic and held.cache is not None else 1
        batch = TorchBatch(held, rows, tile=tile, deterministic=self._deterministic)
        return Finished(batch.give(held.methods[key[1]](batch)))
