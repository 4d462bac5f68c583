"""The layers of a SNAC decoder, each fed piece by piece.

A layer takes the next positions of its input with the state the piece before left behind, and gives every
output position whose inputs are all there, with a new state. Joined, the pieces are what the module gives
for the whole input: nothing is approximated. ``last`` says that no more comes; then the zeros which the
module would pad on the right are put there, and the rest comes out.

    convolution, kernel 7, padding 3 (z: padding, the history starts with it; ^: first output)

        z z z 0 1 2 3 | 4 5 6 7 | z z z        the outputs trail the inputs by 3
              ^                                 after 0..3: output 0; after 4..7: 1..4; at the end: 5 6 7

States are values: a step never writes into the one it was given, so any state can be continued twice.
Utterances whose states have the same shapes go through a layer as rows of one piece; ``join`` and ``part``
make one state of theirs, and theirs of one.

All tensors are ``(rows, positions, channels)``, the channels beside each other in memory. So a convolution of
kernel 1 is a product of matrices with packed weights, and the next positions of a state are simply put behind
it. A piece may have no positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from snac.layers import NoiseBlock, Snake1d
from torch import Tensor, nn

from walk_plugin_orpheus.snac_load import BadCodec
from walk_plugin_orpheus.snac_noise import NoiseSource
from walkserve_sdk.nn import PackedLinear

S = TypeVar("S")
Noises = Sequence[NoiseSource] | None
"""Where each row takes its noise from; None leaves it out of all of them."""


class Layer(ABC, Generic[S]):
    """One layer of the stream. It knows no request; what a request has heard is in ``S``.

    Attributes:
        rate: Output positions per input position.
        lag: How many output positions the layer is behind: after ``n`` inputs, ``rate * n - lag`` are out.
        initial: The state of one row before the first piece.
    """

    rate: int = 1
    lag: int = 0
    initial: S

    @abstractmethod
    def step(self, x: Tensor, state: S, *, last: bool, noises: Noises) -> tuple[Tensor, S]:
        """Give the output positions that ``x`` completes, and the state after it."""

    @abstractmethod
    def join(self, states: Sequence[S]) -> S:
        """The states of several rows as that of a piece that holds them all."""

    @abstractmethod
    def part(self, state: S, row: int) -> S:
        """One row's share: a copy, as a view would keep the whole piece alive."""


class Stateless(Layer[None]):
    """A layer that looks at one position at a time."""

    initial = None

    def join(self, states: Sequence[None]) -> None:
        return None

    def part(self, state: None, row: int) -> None:
        return None


class Pointwise(Stateless):
    """A module that does not mind where the channels are."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def step(self, x: Tensor, state: None, *, last: bool, noises: Noises) -> tuple[Tensor, None]:
        return self._module(x), None


class Snake(Stateless):
    """``x + sin(alpha x)**2 / alpha``, the periodic activation of SNAC (Ziyin et al., 2020)."""

    def __init__(self, module: Snake1d) -> None:
        self._alpha = module.alpha.detach().flatten()
        self._inverse = 1 / (self._alpha + 1e-9)

    def step(self, x: Tensor, state: None, *, last: bool, noises: Noises) -> tuple[Tensor, None]:
        wave = (x * self._alpha).sin_()
        return torch.addcmul(x, wave.square_(), self._inverse), None


class Mix(Stateless):
    """A convolution of kernel 1: each position's channels by one matrix."""

    def __init__(self, module: nn.Conv1d) -> None:
        self._linear = PackedLinear(module.weight.detach()[..., 0], module.bias)

    def step(self, x: Tensor, state: None, *, last: bool, noises: Noises) -> tuple[Tensor, None]:
        return self._linear(x), None


class Conv(Layer[Tensor], ABC):
    """A same-padded convolution of stride 1; its state is as much of the input as the kernel spans."""

    def __init__(self, module: nn.Conv1d, where: str) -> None:
        _check_same_length(module, where)
        (kernel,), (self._dilation,) = module.kernel_size, module.dilation
        self._span = (kernel - 1) * self._dilation
        self._weight = module.weight.detach()
        self._bias = None if module.bias is None else module.bias.detach()
        self.lag = int(module.padding[0])
        self.initial = self._weight.new_zeros(1, self.lag, module.in_channels)

    def step(self, x: Tensor, state: Tensor, *, last: bool, noises: Noises) -> tuple[Tensor, Tensor]:
        x = torch.cat((state, x, self.initial.expand(len(x), -1, -1)) if last else (state, x), dim=1)
        ready = x.shape[1] - self._span
        if ready <= 0:
            return x.new_empty(len(x), 0, len(self._weight)), x
        return self._convolve(x, ready), x[:, ready:]

    @abstractmethod
    def _convolve(self, x: Tensor, ready: int) -> Tensor:
        """The ``ready`` outputs for ``ready + span`` inputs."""

    def join(self, states: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(states))

    def part(self, state: Tensor, row: int) -> Tensor:
        return state[row : row + 1].clone(memory_format=torch.contiguous_format)


class Grouped(Conv):
    """One by torch, in groups of channels; in the published codec a group is one channel."""

    def __init__(self, module: nn.Conv1d, where: str) -> None:
        super().__init__(module, where)
        # a second dimension of size 1: only so does torch take the channels where they are
        self._kernel = self._weight[:, :, None].contiguous(memory_format=torch.channels_last)
        self._groups = module.groups

    def _convolve(self, x: Tensor, ready: int) -> Tensor:
        image = x.transpose(1, 2)[:, :, None]
        y = F.conv2d(image, self._kernel, self._bias, dilation=(1, self._dilation), groups=self._groups)
        return y[:, :, 0].transpose(1, 2)


class Dense(Conv):
    """One that mixes all channels: what each input adds to each output it touches, then the sums.

    As one product, it gives a position the same bits in a piece of any length; torch's convolution does not.
    """

    def __init__(self, module: nn.Conv1d, where: str) -> None:
        super().__init__(module, where)
        outputs, inputs, self._taps = self._weight.shape
        self._linear = PackedLinear(self._weight.permute(2, 0, 1).reshape(self._taps * outputs, inputs))

    def _convolve(self, x: Tensor, ready: int) -> Tensor:
        parts = self._linear(x).view(*x.shape[:2], self._taps, -1)
        y = parts[:, :ready, 0]
        for tap in range(1, self._taps):
            start = tap * self._dilation
            y = y + parts[:, start : start + ready, tap]
        return y if self._bias is None else y + self._bias


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
        blocked = blocked.view(inputs, outputs, self._blocks * stride)
        # As one matrix, from an input position to the positions it writes.
        self._linear = PackedLinear(blocked.permute(2, 1, 0).reshape(-1, inputs))
        self._bias = weight.new_zeros(outputs) if module.bias is None else module.bias.detach()
        self._outputs = outputs
        self._past_end = kernel - stride - padding + extra
        self.rate = stride
        self.lag = padding
        self.initial = (padding, None)

    def step(
        self, x: Tensor, state: tuple[int, Tensor | None], *, last: bool, noises: Noises
    ) -> tuple[Tensor, tuple[int, Tensor | None]]:
        trim, waiting = state
        rows, count, _ = x.shape
        if count == 0 and (waiting is None or not last):
            return x.new_empty(rows, 0, self._outputs), state
        parts = self._linear(x).view(rows, count, self._blocks, -1)
        done = parts.new_zeros(rows, count + self._blocks - 1, parts.shape[-1])
        for block in range(self._blocks):
            done[:, block : block + count] += parts[:, :, block]
        if waiting is not None:
            done[:, : self._blocks - 1] += waiting
        stop = self.rate * count + (self._past_end if last else 0)
        y = done.view(rows, -1, self._outputs)[:, trim:stop] + self._bias
        return y, (max(0, trim - stop), done[:, count:])

    def join(self, states: Sequence[tuple[int, Tensor | None]]) -> tuple[int, Tensor | None]:
        waiting = [each for _, each in states if each is not None]
        return states[0][0], torch.cat(waiting) if waiting else None

    def part(self, state: tuple[int, Tensor | None], row: int) -> tuple[int, Tensor | None]:
        trim, waiting = state
        return trim, None if waiting is None else waiting[row : row + 1].clone()


class Noise(Layer[tuple[int, ...]]):
    """Normal noise, scaled by a linear map of the features; its state is how far each row has come."""

    initial = (0,)

    def __init__(self, module: NoiseBlock, index: int, where: str) -> None:
        if module.linear.kernel_size != (1,):
            raise BadCodec(f"{where}.linear: a noise block must have kernel 1, not {module.linear}")
        self._scale = Mix(module.linear)
        self._index = index

    def step(
        self, x: Tensor, state: tuple[int, ...], *, last: bool, noises: Noises
    ) -> tuple[Tensor, tuple[int, ...]]:
        count = x.shape[1]
        after = tuple(start + count for start in state)
        if noises is None or count == 0:
            return x, after
        places = zip(noises, state, after, strict=True)
        drawn = torch.stack([noise.normal(self._index, start, stop) for noise, start, stop in places])
        scale, _ = self._scale.step(x, None, last=last, noises=None)
        return torch.addcmul(x, scale, drawn[..., None].to(x.device, x.dtype)), after

    def join(self, states: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(position for positions in states for position in positions)

    def part(self, state: tuple[int, ...], row: int) -> tuple[int, ...]:
        return (state[row],)


class Chain(Layer[tuple[Any, ...]]):
    """Layers one after the other."""

    def __init__(self, layers: Iterable[Layer[Any]]) -> None:
        self.layers = tuple(layers)
        self.initial = tuple(layer.initial for layer in self.layers)
        for layer in self.layers:
            self.lag = layer.rate * self.lag + layer.lag
            self.rate *= layer.rate

    def step(
        self, x: Tensor, state: tuple[Any, ...], *, last: bool, noises: Noises
    ) -> tuple[Tensor, tuple[Any, ...]]:
        after = list(state)
        for place, layer in enumerate(self.layers):
            if x.shape[1] == 0 and not last:
                break  # nothing more to hear this time; the states further on stay as they are
            x, after[place] = layer.step(x, state[place], last=last, noises=noises)
        return x, tuple(after)

    def join(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        by_layer = zip(*states, strict=True)
        return tuple(layer.join(each) for layer, each in zip(self.layers, by_layer, strict=True))

    def part(self, state: tuple[Any, ...], row: int) -> tuple[Any, ...]:
        return tuple(layer.part(each, row) for layer, each in zip(self.layers, state, strict=True))


class Residual(Layer[tuple[tuple[Any, ...], Tensor]]):
    """A branch that is added to its own input; the input waits until the branch has caught up.

    Args:
        branch: The layers whose output is added.
        nothing: Zero positions of the input, ``(1, 0, channels)``.
    """

    def __init__(self, branch: Chain, nothing: Tensor) -> None:
        self._branch = branch
        self.lag = branch.lag
        self.initial = (branch.initial, nothing)

    def step(
        self, x: Tensor, state: tuple[tuple[Any, ...], Tensor], *, last: bool, noises: Noises
    ) -> tuple[Tensor, tuple[tuple[Any, ...], Tensor]]:
        inner, waiting = state
        y, inner = self._branch.step(x, inner, last=last, noises=noises)
        waiting = torch.cat((waiting, x), dim=1)
        ready = y.shape[1]
        if ready == 0:
            return x[:, :0], (inner, waiting)
        return waiting[:, :ready] + y, (inner, waiting[:, ready:])

    def join(self, states: Sequence[tuple[tuple[Any, ...], Tensor]]) -> tuple[tuple[Any, ...], Tensor]:
        inners, waiting = zip(*states, strict=True)
        return self._branch.join(inners), torch.cat(waiting)

    def part(self, state: tuple[tuple[Any, ...], Tensor], row: int) -> tuple[tuple[Any, ...], Tensor]:
        inner, waiting = state
        return self._branch.part(inner, row), waiting[row : row + 1].clone()


def convolution(module: nn.Conv1d, where: str) -> Layer[Any]:
    """The layer for a convolution."""
    if module.groups > 1:
        return Grouped(module, where)
    if module.kernel_size == (1,):
        _check_same_length(module, where)
        return Mix(module)
    return Dense(module, where)


def _check_same_length(module: nn.Conv1d, where: str) -> None:
    (kernel,), (dilation,) = module.kernel_size, module.dilation
    keeps = 2 * int(module.padding[0]) == (kernel - 1) * dilation
    if module.stride != (1,) or not keeps or module.padding_mode != "zeros":
        raise BadCodec(f"{where}: a convolution must have stride 1 and keep its length, not {module}")
