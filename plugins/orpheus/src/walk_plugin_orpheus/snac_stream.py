"""A SNAC decoder that speaks frame by frame, exactly as if it had decoded all frames at once.

With the 24 kHz model the sound of a frame depends on the three frames before it and the three after. Each
layer therefore keeps what it still needs of its input and gives every position as soon as it is final:
after ``n`` frames, ``2048 n - 4757`` samples have left and cannot change any more.

    frames       1      2      3      4      5    ...   n, the last
    samples      0      0  1,387  3,435  5,483          2,048 n

Nothing is computed twice, the first and the last frames are spoken like the others, and the cut into
pieces does not show. The authors' decoder instead takes four frames for each new one and keeps the second
(``WindowDecoder``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from snac import SNAC
from snac.layers import DecoderBlock, NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from walk_plugin_orpheus.frames import CODEBOOK_SLOTS, SLOTS
from walk_plugin_orpheus.snac_layers import (
    Chain,
    Layer,
    Noise,
    Noises,
    Pointwise,
    Residual,
    Snake,
    Upsample,
    convolution,
)
from walk_plugin_orpheus.snac_load import BadCodec, load_snac
from walk_plugin_orpheus.snac_noise import KeyedNoise, NoiseSource, ShiftedNoise

__all__ = [
    "BadCodec",
    "DecoderState",
    "KeyedNoise",
    "NoiseSource",
    "StreamingDecoder",
    "WindowDecoder",
    "WindowState",
    "frames_to_codes",
    "load_snac",
]

WINDOW = 4
"""Frames the authors decode at a time."""


def frames_to_codes(frames: Tensor) -> list[Tensor]:
    """Lay frames out as SNAC's codebooks take them.

    Args:
        frames: ``(rows, frames, 7)`` codes in slot order.

    Returns:
        For each codebook ``(rows, frames * codes per frame)``: one, two and four codes per frame.
    """
    return [frames[..., slots].flatten(1) for slots in CODEBOOK_SLOTS]


@dataclass(frozen=True, slots=True)
class DecoderState:
    """What a decoder has to remember of an utterance. A value: it may be kept and decoded from again.

    Attributes:
        frames: Frames heard so far.
        ended: Whether the utterance is closed; nothing can follow.
        layers: The states of the layers, for ``StreamingDecoder`` alone to read.
    """

    frames: int
    ended: bool
    layers: tuple[Any, ...]


class StreamingDecoder:
    """Decodes utterances piece by piece; many at once, each with a state of its own.

    Attributes:
        sample_rate: In Hz.
        frame_samples: Samples per frame, 2,048 in the 24 kHz model.
        lag_samples: How far the sound is behind the frames, 4,757 samples (198 ms) in the 24 kHz model.
        noise_rates: For each noise block, its positions per frame.

    Raises:
        BadCodec: If the codec has a layer that cannot be streamed, or no Orpheus frames.
    """

    def __init__(self, snac: SNAC) -> None:
        strides = tuple(quantizer.stride for quantizer in snac.quantizer.quantizers)
        steps = len(CODEBOOK_SLOTS[-1])
        if strides != tuple(steps // len(slots) for slots in CODEBOOK_SLOTS):
            raise BadCodec(f"vq_strides are {list(strides)}; frames of Orpheus are for [4, 2, 1]")
        self._latents_of = [_table(quantizer) for quantizer in snac.quantizer.quantizers]
        self._codebook_size: int = snac.codebook_size
        self._device = next(snac.quantizer.parameters()).device
        self._chain = Chain(_streamed(snac.decoder.model, "decoder.model", count()))
        self.sample_rate: int = snac.sampling_rate
        self.frame_samples = self._chain.rate * steps
        self.lag_samples = self._chain.lag
        self.noise_rates = tuple(rate * steps for rate in _noise_rates(self._chain))

    def initial(self) -> DecoderState:
        """The state before the first frame."""
        return DecoderState(frames=0, ended=False, layers=self._chain.initial)

    def samples_after(self, frames: int) -> int:
        """How many samples have left after ``frames`` frames, of an utterance not yet closed."""
        return max(0, frames * self.frame_samples - self.lag_samples)

    def kind(self, state: DecoderState) -> int:
        """States of one kind have the same shapes, so that their utterances can be decoded as rows together.

        A layer that has given something holds as much as its kernel spans, from then on; before, as much as
        it has heard.
        """
        return -1 if self.samples_after(state.frames) else state.frames

    def decode(
        self, codes: Tensor, state: DecoderState, *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, DecoderState]:
        """Decode the next frames of one utterance, as ``decode_rows`` does.

        Args:
            codes: ``(frames, 7)``.

        Returns:
            ``(samples,)``, and the state after them.
        """
        noises = None if noise is None else [noise]
        sound, (after,) = self.decode_rows(codes[None], [state], last=last, noises=noises)
        return sound[0], after

    @torch.no_grad()
    def decode_rows(
        self, codes: Tensor, states: Sequence[DecoderState], *, last: bool, noises: Noises
    ) -> tuple[Tensor, list[DecoderState]]:
        """Decode the next frames of some utterances and give every sample that is final now.

        Args:
            codes: ``(rows, frames, 7)`` int64 in slot order, ``0 <= code < codebook_size``; zero frames are
                fine.
            states: Of one ``kind``: each is ``initial()``, or the state that the row's frames before led to.
                They stay valid.
            last: No more frames follow: the rest of the sound comes out.
            noises: Where each row's noise blocks take their numbers from; without, they add nothing.

        Returns:
            ``(rows, samples)`` float32 in [-1, 1] on the codec's device, and the states after them.

        Raises:
            ValueError: If the codes are no frames of this codec or an utterance was closed before.
        """
        _check_codes(codes, self._codebook_size)
        if any(state.ended for state in states):
            raise ValueError("the utterance is closed: nothing follows last=True; begin at initial()")
        rows, count, _ = codes.shape
        layers = self._chain.join([state.layers for state in states])
        sound = torch.empty(rows, 0, device=self._device)
        if count or (last and any(state.frames for state in states)):
            sound, layers = self._chain.step(self._latents(codes), layers, last=last, noises=noises)
        after = [
            DecoderState(state.frames + count, last, self._chain.part(layers, row))
            for row, state in enumerate(states)
        ]
        return sound.reshape(rows, -1).float(), after

    def _latents(self, codes: Tensor) -> Tensor:
        rows, count, _ = codes.shape
        steps = len(CODEBOOK_SLOTS[-1])
        finest = self._latents_of[-1]
        latents = finest.new_zeros(rows, count * steps, finest.shape[1])
        by_codebook = zip(self._latents_of, CODEBOOK_SLOTS, frames_to_codes(codes), strict=True)
        for table, slots, some in by_codebook:
            latents += table[some.to(self._device)].repeat_interleave(steps // len(slots), dim=1)
        return latents


@dataclass(frozen=True, slots=True)
class WindowState:
    """The frames a later window still needs, and how many came before them.

    Attributes:
        before: Frames that no window needs any more.
        codes: ``(at most 3, 7)``.
    """

    before: int
    codes: Tensor


class WindowDecoder:
    """The authors' decoder, for comparison: four frames at a time, of which the second is heard.

    The first and the last two frames are never spoken, and three quarters of the work is thrown away. The
    sound is float32 here, not 16-bit; and noise is the same wherever windows overlap, not drawn anew.
    """

    def __init__(self, snac: SNAC) -> None:
        self._whole = StreamingDecoder(snac)

    def initial(self) -> WindowState:
        """The state before the first frame."""
        return WindowState(before=0, codes=torch.empty(0, SLOTS, dtype=torch.int64))

    def kind(self, state: WindowState) -> int:
        """As ``StreamingDecoder.kind``."""
        return len(state.codes)

    def decode_rows(
        self, codes: Tensor, states: Sequence[WindowState], *, last: bool, noises: Noises
    ) -> tuple[Tensor, list[WindowState]]:
        """Give the sound of each window that is complete now; ``last`` adds nothing.

        Args and returns are those of ``StreamingDecoder.decode_rows``; the samples are on the CPU.
        """
        one_by_one = [
            self.decode(frames, state, last=last, noise=None if noises is None else noises[row])
            for row, (frames, state) in enumerate(zip(codes, states, strict=True))
        ]
        return torch.stack([sound for sound, _ in one_by_one]), [state for _, state in one_by_one]

    def decode(
        self, codes: Tensor, state: WindowState, *, last: bool, noise: NoiseSource | None
    ) -> tuple[Tensor, WindowState]:
        """One utterance, as ``decode_rows`` does."""
        codes = torch.cat((state.codes, codes.cpu()))
        windows = max(0, len(codes) - WINDOW + 1)
        heard = [
            self._second(codes[start : start + WINDOW], before=state.before + start, noise=noise)
            for start in range(windows)
        ]
        return torch.cat([torch.empty(0), *heard]), WindowState(state.before + windows, codes[windows:])

    def _second(self, codes: Tensor, *, before: int, noise: NoiseSource | None) -> Tensor:
        if noise is not None:
            noise = ShiftedNoise(noise, tuple(before * rate for rate in self._whole.noise_rates))
        samples, _ = self._whole.decode(codes, self._whole.initial(), last=True, noise=noise)
        return samples[self._whole.frame_samples :][: self._whole.frame_samples].cpu()


@torch.no_grad()
def _table(quantizer: nn.Module) -> Tensor:
    """(codebook_size, channels): what each code adds to a latent, so that no code is projected twice."""
    projected: Tensor = quantizer.out_proj(quantizer.codebook.weight.t()[None])
    return projected[0].t().contiguous()


def _check_codes(codes: Tensor, codebook_size: int) -> None:
    if codes.dim() != 3 or codes.shape[2] != SLOTS or codes.dtype != torch.int64:
        shape = tuple(codes.shape)
        raise ValueError(f"codes are (rows, frames, {SLOTS}) of int64, not {shape} of {codes.dtype}")
    if codes.numel() == 0:
        return
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= codebook_size:
        # A lookup outside the codebook would end the process on a GPU.
        raise ValueError(f"codes go from {low} to {high}; a codebook has the codes 0 to {codebook_size - 1}")


def _streamed(module: nn.Module, where: str, noise_index: Iterator[int]) -> list[Layer[Any]]:
    """The streaming layers that do what ``module`` does."""
    match module:
        case nn.Sequential():
            return [
                layer
                for name, child in module.named_children()
                for layer in _streamed(child, f"{where}.{name}", noise_index)
            ]
        case DecoderBlock():
            return _streamed(module.block, f"{where}.block", noise_index)
        case ResidualUnit():
            branch = Chain(_streamed(module.block, f"{where}.block", noise_index))
            alpha = module.block[0].alpha.detach()
            return [Residual(branch, nothing=alpha[..., :0].transpose(1, 2))]
        case nn.Conv1d():
            return [convolution(module, where)]
        case nn.ConvTranspose1d():
            return [Upsample(module, where)]
        case Snake1d():
            return [Snake(module)]
        case NoiseBlock():
            return [Noise(module, next(noise_index), where)]
        case nn.Tanh():
            return [Pointwise(module)]
        case _:
            raise BadCodec(f"{where} is a {type(module).__name__}, which cannot be decoded as a stream")


def _noise_rates(chain: Chain) -> Iterator[int]:
    """For each noise block, its positions per latent."""
    rate = 1
    for layer in chain.layers:
        rate *= layer.rate
        if isinstance(layer, Noise):
            yield rate
