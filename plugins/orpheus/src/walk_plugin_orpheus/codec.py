"""The codec: frames of speech tokens in, samples out, joined without a seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walk_plugin_orpheus.frames import SLOTS, align
from walk_plugin_orpheus.ids import SpeechIds, read_speech_ids
from walk_plugin_orpheus.snac_stream import BadCodec, KeyedNoise, StreamingDecoder, WindowDecoder, load_snac
from walkserve_sdk import Batch, Checkpoint, Gives, Helping, LoadError


@dataclass(frozen=True)
class _Voice:
    """One utterance so far: the decoder's convolution state, and the tokens of a frame that is not whole."""

    decoder: Any
    partial: tuple[int, ...] = ()


class SnacDecoder:
    """SNAC 24 kHz (Siuzdak 2024) as a stream: however frames arrive, the samples are those of one decode."""

    dtype = torch.float32  # whatever it is loaded in

    def __init__(
        self, exact: StreamingDecoder, window: WindowDecoder, ids: SpeechIds, device: torch.device
    ) -> None:
        self._decoders = {"exact": exact, "window": window}
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
        return {
            "pcm": [self._speak(batch, row, helping) for row, helping in enumerate(batch.values("codes"))]
        }

    def _speak(self, batch: Batch, row: int, helping: Helping) -> Tensor | None:
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
        codes = torch.tensor(aligned.frames, dtype=torch.int64, device=self._device).reshape(-1, SLOTS)
        noise = (
            KeyedNoise(lambda layer, cell: batch.key(row, "noise", layer, cell))
            if options.codec_noise
            else None
        )
        pcm, state = decoder.decode(codes, voice.decoder, last=helping.last, noise=noise)
        batch.state[row] = _Voice(state, aligned.partial)
        return pcm.clamp(-1, 1) if len(pcm) else None
