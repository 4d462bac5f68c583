"""The codec: frames of speech tokens in, samples out, joined without a seam."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walk_plugin_orpheus.frames import SLOTS, Aligned, align
from walk_plugin_orpheus.ids import SpeechIds, read_speech_ids
from walk_plugin_orpheus.snac_stream import BadCodec, KeyedNoise, StreamingDecoder, WindowDecoder, load_snac
from walkserve_sdk import Batch, Checkpoint, Gives, Helping, LoadError

MOST_FRAMES = 16
"""Of all rows of one call: what the last layers make of more does not stay in a processor's cache."""


@dataclass(frozen=True)
class _Voice:
    """One utterance so far: the decoder's convolution state, and the tokens of a frame that is not whole."""

    decoder: Any
    partial: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Turn:
    """What one row has to say in this call."""

    row: int
    decoder: StreamingDecoder | WindowDecoder
    state: Any
    frames: Aligned
    is_last: bool
    is_noisy: bool

    @property
    def kind(self) -> tuple[Any, ...]:
        """What rows have to have in common."""
        shape = self.decoder.kind(self.state), len(self.frames.frames)
        return self.decoder, *shape, self.is_last, self.is_noisy


class SnacDecoder:
    """SNAC 24 kHz (Siuzdak 2024) as a stream: however frames arrive, the samples are those of one decode."""

    dtype = torch.float32  # whatever it is loaded in

    def __init__(
        self, exact: StreamingDecoder, window: WindowDecoder, ids: SpeechIds, device: torch.device
    ) -> None:
        self._decoders: dict[str, StreamingDecoder | WindowDecoder] = {"exact": exact, "window": window}
        self._ids = ids
        self._device = device

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> SnacDecoder:
        """Read ``config.json`` and ``pytorch_model.bin``, strictly; float32 whatever ``dtype`` is."""
        try:
            snac = load_snac(checkpoint.folder("snac"), device=device)
        except BadCodec as error:
            raise LoadError(str(error)) from error
        return cls(StreamingDecoder(snac), WindowDecoder(snac), read_speech_ids(checkpoint), device)

    def decode(self, batch: Batch) -> Gives:
        """Speak the whole frames of each row's helping; the last helping also what was held back."""
        turns = [self._read(batch, row, helping) for row, helping in enumerate(batch.values("codes"))]
        pcm: list[Tensor | None] = [None] * batch.size
        for alike in _alike(turns):
            for turn, sound in zip(alike, self._speak(batch, alike), strict=True):
                pcm[turn.row] = sound.clamp(-1, 1) if len(sound) else None
        return {"pcm": pcm}

    def _read(self, batch: Batch, row: int, helping: Helping) -> _Turn:
        """Sort a row's tokens into frames, and count what does not fit."""
        options = batch.options[row]
        decoder = self._decoders[options.decoder]
        voice: _Voice = batch.state[row] or _Voice(decoder.initial())
        aligned = align(
            helping.new, voice.partial, first_code=self._ids.first, codebook_size=self._ids.codebook_size
        )
        dropped = aligned.dropped + (len(aligned.partial) if helping.last else 0)
        if dropped:
            batch.count(row, "dropped_tokens", dropped)
        batch.count(row, "frames", len(aligned.frames))
        return _Turn(row, decoder, voice.decoder, aligned, helping.last, options.codec_noise)

    def _speak(self, batch: Batch, turns: Sequence[_Turn]) -> Iterator[Tensor]:
        """The samples of turns that are alike, each row's state moved on."""
        first = turns[0]
        codes = torch.tensor([turn.frames.frames for turn in turns], dtype=torch.int64, device=self._device)
        noises = [_noise(batch, turn.row) for turn in turns] if first.is_noisy else None
        sounds, states = first.decoder.decode_rows(
            codes.reshape(len(turns), -1, SLOTS),
            [turn.state for turn in turns],
            last=first.is_last,
            noises=noises,
        )
        for turn, sound, state in zip(turns, sounds, states, strict=True):
            batch.state[turn.row] = _Voice(state, turn.frames.partial)
            yield sound


def _alike(turns: Sequence[_Turn]) -> Iterator[list[_Turn]]:
    """Groups that one call can decode: equal in everything that shapes are made of, and not too large."""
    groups: dict[Any, list[_Turn]] = defaultdict(list)
    for turn in turns:
        groups[turn.kind].append(turn)
    for group in groups.values():
        size = max(1, MOST_FRAMES // max(1, len(group[0].frames.frames)))
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _noise(batch: Batch, row: int) -> KeyedNoise:
    return KeyedNoise(lambda layer, cell: batch.key(row, "noise", layer, cell))
