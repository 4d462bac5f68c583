"""Which of a server's processes have stopped moving, by the pulses they write."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from walkserve.transport.pulse import PulseReader

LOOK_S = 0.25
"""How often somebody looks."""
COUNTED_S = 1.0
"""What counts of the time between two looks. A supervisor that was stopped itself, perhaps with its whole
machine, has seen nothing meanwhile, and must not take for stuck who had no chance to move."""


@dataclass(slots=True)
class _Watched:
    reader: PulseReader
    beat: int = 0
    still_s: float = 0.0
    """For how long it has been seen not to move."""


class Pulses:
    """Remembers how everybody stood at the last look.

    Args:
        folder: The server's run folder.
        stuck_after_s: Who has not moved for so long is stuck.
    """

    def __init__(self, folder: Path, stuck_after_s: float) -> None:
        self._folder = folder
        self._stuck_after_s = stuck_after_s
        self._watched: dict[str, _Watched] = {}
        self._looked = 0.0

    def look(self, addresses: Collection[str], now: float) -> list[str]:
        """Who of the processes at ``addresses`` is stuck, at the time ``now`` in seconds.

        One that has not moved yet still loads, however long that takes.
        """
        passed_s, self._looked = min(now - self._looked, COUNTED_S), now
        for gone in self._watched.keys() - set(addresses):
            self._watched.pop(gone).reader.close()
        stuck = []
        for address in addresses:
            one = self._watched.get(address)
            if one is None:
                one = self._watched[address] = _Watched(PulseReader(self._folder, address))
            beat = one.reader.read()
            one.still_s = 0.0 if beat != one.beat or not beat else one.still_s + passed_s
            one.beat = beat
            if one.still_s >= self._stuck_after_s:
                stuck.append(address)
        return stuck

    def close(self) -> None:
        for one in self._watched.values():
            one.reader.close()
        self._watched.clear()
