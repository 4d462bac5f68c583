"""The layers of a SNAC decoder, each fed piece by piece.

A layer takes the next positions of its input with the state the piece before left behind, and gives every
output position whose inputs are all there, with a new state. Joined, the pieces are what the module gives
for the whole input: nothing is approximated. ``last`` says that no more comes; then the zeros which the
module would pad on the right are put there, and the rest comes out.

    convolution, kernel 7, padding 3 (z: padding, the history starts with it; ^: first output)

        z z z 0 1 2 3 | 4 5 6 7 | z z z        the outputs trail the inputs by 3
              ^                                 after 0..3: output 0; after 4..7: 1..4; at the end: 5 6 7

States are values: a step never writes into the one it was given, so any state can be continued twice.
All tensors are ``(1, channels, positions)``; a piece may have no positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from snac.layers import NoiseBlock, Snake1d
from torch import Tensor, nn

from walk_plugin_orpheus.snac_load import BadCodec
from walk_plugin_orpheus.snac_noise import NoiseSource

S = TypeVar("S")


class Layer(ABC, Generic[S]):
    """One layer of the stream. It knows no request; what a request has heard is in ``S``.

    Attributes:
        rate: Output positions per input position.
        lag: How many output positions the layer is behind: after ``n`` inputs, ``rate * n - lag`` are out.
        initial: The state before the first piece.
    """

    rate: int = 1
    lag: int = 0
    initial: S

    @abstractmethod
    def step(self, x: Tensor, state: S, *, last: bool, noise: NoiseSource | None) -> tuple[Tensor, S]:
        """Give the output positions that ``x`` completes, and the state after it."""


class Pointwise(Layer[None]):
    """A module that looks at one position at a time."""

    initial = None

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def step(self, x: Tensor, state: None, *, last: bool, noise: NoiseSource | None) -> tuple[Tensor, None]:
        return self._module(x), None


class Snake(Layer[None]):
    """``x + sin(alpha x)**2 / alpha``, the periodic activation of SNAC (Ziyin et al., 2020)."""

    initial = None

    def __init__(self, module: Snake1d) -> None:
        self._alpha = module.alpha.detach()
        self._inverse = 1 / (self._alpha + 1e-9)

    def step(self, x: Tensor, state: None, *, last: bool, noise: NoiseSource | None) -> tuple[Tensor, None]:
        wave = (x * self._alpha).sin_()
        return torch.addcmul(x, wave.square_(), self._inverse), None


class Conv(Layer[Tensor]):
    """A same-padded convolution of stride 1; its state is as much of the input as the kernel spans."""

    def __init__(self, module: nn.Conv1d, where: str) -> None:
        (kernel,), (dilation,) = module.kernel_size, module.dilation
        padding = int(module.padding[0])
        self._span = (kernel - 1) * dilation
        if module.stride != (1,) or padding != self._span / 2 or module.padding_mode != "zeros":
            raise BadCodec(f"{where}: a convolution must have stride 1 and keep its length, not {module}")
        self._weight = module.weight.detach()
        self._bias = None if module.bias is None else module.bias.detach()
        self._dilation = dilation
        self._groups = module.groups
        self._padding = self._weight.new_zeros(1, module.in_channels, padding)
        self.lag = padding
        self.initial = self._padding

    def step(
        self, x: Tensor, state: Tensor, *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, Tensor]:
        if self._span:
            x = torch.cat((state, x, self._padding) if last else (state, x), dim=-1)
        ready = x.shape[-1] - self._span
        if ready <= 0:
            return x.new_empty(1, self._weight.shape[0], 0), x
        y = F.conv1d(x, self._weight, self._bias, dilation=self._dilation, groups=self._groups)
        # a copy: a view would keep the whole piece alive
        return y, x[..., ready:].clone()


class Upsample(Layer[tuple[int, Tensor | None]]):
    """A transposed convolution by overlap-add.

    Each input position writes ``kernel`` output positions, ``stride`` further on each time. Cut into
    blocks of one stride, input ``i`` adds to the blocks ``i``, ``i + 1``, ...; block ``i`` is done when
    input ``i`` is in. The state is what the blocks not done hold so far, and how many positions are
    still to be trimmed from the left (the module's ``padding``).

        kernel 4, stride 2      block  0   1   2   3
        input 0                       a b|a b|
        input 1                          |a b|a b|
        input 2                              |a b|a b      <- block 3 waits for input 3
    """

    def __init__(self, module: nn.ConvTranspose1d, where: str) -> None:
        (kernel,), (stride,), (extra,) = module.kernel_size, module.stride, module.output_padding
        padding = int(module.padding[0])
        if module.groups != 1 or module.dilation != (1,) or kernel < stride or extra > padding:
            raise BadCodec(f"{where}: this form of transposed convolution is not decoded: {module}")
        weight = module.weight.detach()
        inputs, outputs, _ = weight.shape
        self._blocks = -(-kernel // stride)
        blocked = F.pad(weight, (0, self._blocks * stride - kernel))
        blocked = blocked.view(inputs, outputs, self._blocks, stride)
        # As one matrix: one product per piece, several times faster on few positions than the module.
        self._weight = blocked.transpose(1, 2).reshape(inputs, -1).contiguous()
        self._bias = weight.new_zeros(outputs, 1) if module.bias is None else module.bias.detach().view(-1, 1)
        self._outputs = outputs
        self._past_end = kernel - stride - padding + extra
        self.rate = stride
        self.lag = padding
        self.initial = (padding, None)

    def step(
        self, x: Tensor, state: tuple[int, Tensor | None], *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, tuple[int, Tensor | None]]:
        trim, waiting = state
        count = x.shape[-1]
        if count == 0 and (waiting is None or not last):
            return x.new_empty(1, self._outputs, 0), state
        parts = (x[0].t() @ self._weight).view(count, self._blocks, self._outputs, self.rate)
        done = x.new_zeros(count + self._blocks - 1, self._outputs, self.rate)
        for block in range(self._blocks):
            done[block : block + count] += parts[:, block]
        if waiting is not None:
            done[: self._blocks - 1] += waiting
        waiting = done[count:].clone()
        stop = self.rate * count
        if last:
            stop += self._past_end
        else:
            done = done[:count]
        y = done.transpose(0, 1).reshape(self._outputs, -1)[:, trim:stop] + self._bias
        return y[None], (max(0, trim - stop), waiting)


class Noise(Layer[int]):
    """Normal noise, scaled by a linear map of the features; its state is the position it has come to."""

    initial = 0

    def __init__(self, module: NoiseBlock, index: int, where: str) -> None:
        if module.linear.kernel_size != (1,):
            raise BadCodec(f"{where}.linear: a noise block must have kernel 1, not {module.linear}")
        self._scale = Conv(module.linear, f"{where}.linear")
        self._index = index

    def step(self, x: Tensor, state: int, *, last: bool, noise: NoiseSource | None) -> tuple[Tensor, int]:
        stop = state + x.shape[-1]
        if noise is None or stop == state:
            return x, stop
        drawn = noise.normal(self._index, state, stop).to(x.device, x.dtype)
        scale, _ = self._scale.step(x, self._scale.initial, last=last, noise=None)
        return torch.addcmul(x, scale, drawn), stop


class Chain(Layer[tuple[Any, ...]]):
    """Layers one after the other."""

    def __init__(self, layers: Iterable[Layer[Any]]) -> None:
        self.layers = tuple(layers)
        self.initial = tuple(layer.initial for layer in self.layers)
        for layer in self.layers:
            self.lag = layer.rate * self.lag + layer.lag
            self.rate *= layer.rate

    def step(
        self, x: Tensor, state: tuple[Any, ...], *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, tuple[Any, ...]]:
        after = list(state)
        for place, layer in enumerate(self.layers):
            if x.shape[-1] == 0 and not last:
                break  # nothing more to hear this time; the states further on stay as they are
            x, after[place] = layer.step(x, state[place], last=last, noise=noise)
        return x, tuple(after)


class Residual(Layer[tuple[tuple[Any, ...], Tensor]]):
    """A branch that is added to its own input; the input waits until the branch has caught up.

    Args:
        branch: The layers whose output is added.
        nothing: Zero positions of the input, ``(1, channels, 0)``.
    """

    def __init__(self, branch: Chain, nothing: Tensor) -> None:
        self._branch = branch
        self.lag = branch.lag
        self.initial = (branch.initial, nothing)

    def step(
        self, x: Tensor, state: tuple[tuple[Any, ...], Tensor], *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, tuple[tuple[Any, ...], Tensor]]:
        inner, waiting = state
        y, inner = self._branch.step(x, inner, last=last, noise=noise)
        waiting = torch.cat((waiting, x), dim=-1)
        ready = y.shape[-1]
        if ready == 0:
            return x[..., :0], (inner, waiting)
        return waiting[..., :ready] + y, (inner, waiting[..., ready:].clone())
