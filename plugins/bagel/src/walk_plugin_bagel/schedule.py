"""When a picture is denoised how far: timesteps, and on which of them text and images guide. No torch here.

All of it is in single precision, as the authors compute it: 3 x 0.75 / 2.5 is then the same 0.9 as in an
interval that ends there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Schedule:
    """One entry a step.

    Args:
        timesteps: 1 is noise alone, 0 the picture.
        steps: How far each goes towards 0.
        guided: Whether the text's guidance applies.
        guided_by_images: Whether that of input images applies too.
    """

    timesteps: list[float]
    steps: list[float]
    guided: list[bool]
    guided_by_images: list[bool]


def make_schedule(
    *,
    num_timesteps: int,
    timestep_shift: float,
    cfg_text_scale: float,
    cfg_img_scale: float,
    cfg_interval: tuple[float, float],
) -> Schedule:
    """The authors' schedule: n timesteps from 1 to 0, shifted towards noise, are n - 1 steps.

    Without guidance by text there is none by images either.
    """
    times = [_shifted(uniform, timestep_shift) for uniform in _uniform(num_timesteps)]
    low, high = map(_single, cfg_interval)
    guided = [cfg_text_scale > 1 and low < time <= high for time in times[:-1]]
    return Schedule(
        timesteps=times[:-1],
        steps=[_single(now - then) for now, then in pairwise(times)],
        guided=guided,
        guided_by_images=[each and cfg_img_scale > 1 for each in guided],
    )


def previewing(steps: int, times: int) -> list[bool]:
    """After which steps the picture is shown before it is done, at even distances: at most ``times``."""
    shown = {round(steps * part / (times + 1)) for part in range(1, times + 1)}
    return [done in shown for done in range(1, steps)] + [False]


def _uniform(count: int) -> list[float]:
    """``torch.linspace(1, 0, count)``, to the bit: from either end to the middle, and rounded once."""
    step = _single(1 / (count - 1))
    first = [_single(1 - step * index) for index in range(count // 2)]
    last = [_single(step * index) for index in range(count - count // 2)]
    return first + last[::-1]


def _shifted(uniform: float, shift: float) -> float:
    above = _single(_single(shift) * uniform)
    below = _single(1 + _single(_single(shift - 1) * uniform))
    return _single(above / below)


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
