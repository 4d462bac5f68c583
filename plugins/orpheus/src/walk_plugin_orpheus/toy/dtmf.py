"""A telephone's ear: which keys were dialled in a sound.

It knows the DTMF standard (ITU-T Q.23) and nothing of the model, so it can say whether the toy spoke the
digits it was asked for. Each key is two tones at once, one of its row and one of its column. The power at
the eight frequencies is measured by Goertzel's recursion in short overlapping windows, shorter than the
gap between two keys, so that a key pressed twice is heard twice.
"""

import numpy as np
from numpy.typing import NDArray

KEYS = ("123A", "456B", "789C", "*0#D")
ROWS_HZ = (697.0, 770.0, 852.0, 941.0)
COLUMNS_HZ = (1209.0, 1336.0, 1477.0, 1633.0)

_WINDOW_S = 0.032  # 31 Hz between bins; the closest two tones are 73 Hz apart
_HOP_S = 0.004
_SHORTEST_TONE_S = 0.06
_SHORTEST_GAP_S = 0.012  # in windows without a key; those of 32 ms that fit into a gap of 43 ms
_LOUD = 0.1  # energy of a window, against the loudest
_PURE = 0.5  # share of a window's energy that lies in the two tones
_AHEAD = 3.0  # how many times the next tone of its group a tone must have


def digits_heard(samples: NDArray[np.floating], rate: int) -> str:
    """Say which keys are dialled in ``samples``, in order.

    A key counts when, for at least 60 ms, both its tones stand out of their group of four and together
    make most of the sound. Two equal keys are two when there is a gap between them.

    Args:
        samples: ``(samples,)``, any scale.
        rate: Samples per second.
    """
    keys = _keys(np.asarray(samples, dtype=np.float64).reshape(-1), rate)
    long = round(_SHORTEST_TONE_S / _HOP_S)
    apart = round(_SHORTEST_GAP_S / _HOP_S)
    heard = ""
    key, run, silent = "", 0, apart
    for now in keys:
        if now == key and now:
            run, silent = run + 1, 0
        elif now:
            key, run, silent = now, 1, 0
        else:
            silent += 1
            if silent >= apart:
                key, run = "", 0
        if run == long:
            heard += key
    return heard


def _keys(samples: NDArray[np.float64], rate: int) -> list[str]:
    """For each window, the key that sounds in it, or an empty string."""
    size = round(_WINDOW_S * rate)
    if len(samples) < size:
        return []
    shape = np.hamming(size)
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[:: round(_HOP_S * rate)] * shape
    whole = (windows**2).sum(axis=1)
    # Scaled to energies: a pure tone has as much as its whole window.
    energy = _goertzel(windows, np.array(ROWS_HZ + COLUMNS_HZ) / rate)
    energy *= 2 * (shape**2).sum() / shape.sum() ** 2
    rows, columns = energy[:, :4], energy[:, 4:]
    clear = (
        (rows.max(axis=1) + columns.max(axis=1) > _PURE * whole)
        & (whole > _LOUD * whole.max())
        & (whole > 0)
        & _stands_out(rows)
        & _stands_out(columns)
    )
    places = zip(clear, rows.argmax(axis=1), columns.argmax(axis=1), strict=True)
    return [KEYS[row][column] if is_clear else "" for is_clear, row, column in places]


def _stands_out(energy: NDArray[np.float64]) -> NDArray[np.bool_]:
    ordered = np.sort(energy, axis=1)
    return ordered[:, -1] > _AHEAD * ordered[:, -2]


def _goertzel(windows: NDArray[np.float64], cycles_per_sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared magnitude at each frequency of each window, ``(windows, frequencies)``."""
    turn = 2 * np.cos(2 * np.pi * cycles_per_sample)
    before = np.zeros((len(windows), len(cycles_per_sample)))
    now = before
    for sample in windows.T:
        before, now = now, sample[:, None] + turn * now - before
    return now**2 + before**2 - turn * now * before
