"""A listener who plays sound as it comes: when would there be silence where sound was due?"""

from __future__ import annotations


class Playback:
    """One stream of sound against the wall clock. It starts to play with the first samples.

    An underrun is a moment at which all that had come was played and more was still to come; what comes
    after it plays from then on.
    """

    def __init__(self) -> None:
        self.underruns = 0
        self.silent_s = 0.0
        self._until: float | None = None  # when what has come will have been played

    def came(self, sound_s: float, now: float) -> float:
        """So many seconds of sound have come; how many seconds of silence there were before them."""
        if sound_s <= 0:
            return 0.0
        silent_s = 0.0
        if self._until is not None and now > self._until:
            silent_s = now - self._until
            self.underruns += 1
            self.silent_s += silent_s
        self._until = max(now, self._until or now) + sound_s
        return silent_s
