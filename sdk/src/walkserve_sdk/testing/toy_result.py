"""What a toy run leaves behind: outputs, the journal of its steps, and what it counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkserve_sdk.testing.toy_branches import Branch
from walkserve_sdk.tracks import Outcome


class ToyStep(NamedTuple):
    """One line of the journal.

    Args:
        track: Whose it is; ``"prepare"`` before there are tracks.
        did: A graph's name where a Walk starts, ``"fork"``, or a call: ``"llama.next"``, with the branch
            where it is another than main (``"llm.velocity@no_text"``) and the row inside a Fan
            (``"predictor.step[2]"``).
        detail: A Walk's inputs, a fork's ``(component, from, to)``, or the values a call took, by name.
    """

    track: str
    did: str
    detail: Any


class FanItem(NamedTuple):
    """An output's item that a row of a Fan gave."""

    row: int
    value: Any


@dataclass
class StreamTotal:
    """What went through one stream.

    Args:
        written: Items its writer wrote before it ended, discarded ones included.
        taken: Items handed over as fresh.
        discarded: Items written once nobody read any more.
        helpings: How often the reader was called.
    """

    written: int = 0
    taken: int = 0
    discarded: int = 0
    helpings: int = 0


@dataclass
class ToyResult:
    """One request, walked to its end.

    Args:
        outputs: Items by output, of those the request asked for.
        finish_reason: Of the first declared track that returned one, else ``"stop"``; ``"cancelled"``.
        steps: Every Walk, fork and call, in the order they ran.
        counts: What components counted.
        streams: Totals by stream.
        budget: What ``Model.budget`` answered, by component; of single branches by ``"llm@no_text"``.
        branches: Every branch that a component wrote or a track forked, by component and name.
        shared: Rows that were not computed because a neighbour in their Parallel was their equal.
        prepared: The outcome of ``Model.prepare``.
    """

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    finish_reason: str = "stop"
    steps: list[ToyStep] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    streams: dict[str, StreamTotal] = field(default_factory=dict)
    budget: dict[str, tuple[int, int]] = field(default_factory=dict)
    branches: Mapping[tuple[str, str], Branch] = field(default_factory=dict)
    shared: int = 0
    prepared: Outcome = field(default_factory=Outcome)

    def did(self, track: str | None = None) -> list[str]:
        """The journal's middle column, of one track or of all."""
        return [step.did for step in self.steps if track in (None, step.track)]

    def calls(self, did: str) -> list[Any]:
        """What every call of this name took, in order: ``result.calls("snac.decode")``."""
        return [step.detail for step in self.steps if step.did == did]
