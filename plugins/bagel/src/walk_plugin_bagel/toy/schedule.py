"""How fast the toy learns: AdamW, a short warm-up, and a cosine down to a fiftieth."""

import math

from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

_WARM_UP_STEPS = 50
_LOWEST = 0.02
_LARGEST_GRADIENT = 1.0


class Schedule:
    """One optimizer over ``steps`` steps, at most as fast as ``rate``."""

    def __init__(
        self, parameters: list[nn.Parameter], *, steps: int, rate: float, betas: tuple[float, float]
    ) -> None:
        self._parameters = parameters
        self._optimizer = AdamW(parameters, lr=rate, betas=betas)

        def factor(step: int) -> float:
            fall = _LOWEST + (1 - _LOWEST) * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
            return min(1.0, (step + 1) / _WARM_UP_STEPS) * fall

        self._rate = LambdaLR(self._optimizer, factor)

    def step(self, loss: Tensor) -> None:
        """Move every parameter a step down the loss."""
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, _LARGEST_GRADIENT)
        self._optimizer.step()
        self._rate.step()
