"""The encoder: pictures in, latents out. Of a whole video at once, or of a robot's frames one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from walk_plugin_vjepa2.checkpoint import read_video_model, read_world_model
from walk_plugin_vjepa2.loading import load_encoder
from walk_plugin_vjepa2.rows import alike
from walk_plugin_vjepa2.shapes import Shape
from walkserve_sdk import Batch, Checkpoint, Gives

_MOST_TOKENS = 8192
"""Of all rows of one pass, or one row's if they are more: 64 frames of 256 pixels. What is larger fills a
device as well, and takes memory."""


class _Encoder:
    """transformers' ``VJEPA2Encoder``."""

    def __init__(self, encoder: Any, shape: Shape, *, device: torch.device, dtype: torch.dtype) -> None:
        self._encoder = encoder
        self._shape = shape
        self._device = device
        self._dtype = dtype

    def _latents(self, clips: Tensor) -> Tensor:
        """(rows, frames, 3, size, size) to (rows, tokens, width) float32."""
        return self._encoder(pixel_values_videos=clips).last_hidden_state.float()

    def _on_device(self, pixels: Tensor) -> Tensor:
        return pixels.to(self._device, self._dtype)


class VideoEncoder(_Encoder):
    """A video's latents: a token per patch and tubelet, each of which has seen the whole video."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> VideoEncoder:
        """Read the encoder of either layout, strictly."""
        stored = read_video_model(checkpoint)
        encoder = load_encoder(stored, device=device, dtype=dtype)
        return cls(encoder, stored.shape, device=device, dtype=dtype)

    def encode(self, batch: Batch) -> Gives:
        """``clip`` (frames, 3, size, size) to ``latent`` (tokens, width).

        A single frame is repeated to fill its tubelet, as transformers does.
        """
        clips = batch.values("clip")
        latents: list[Any] = [None] * batch.size
        tubelets = max(-(-len(clip) // self._shape.tubelet) for clip in clips)
        most = max(1, _MOST_TOKENS // (tubelets * self._shape.patches))
        for rows in alike([clip.shape for clip in clips], most=most):
            made = self._latents(torch.stack([self._on_device(clips[row]) for row in rows]))
            latents = _dealt(latents, rows, made)
        return {"latent": latents}

    def pool(self, batch: Batch) -> Gives:
        """``latents``: those of ``latent`` (tokens, width), or where ``pooled`` their mean (width,)."""
        rows = zip(batch.values("latent"), batch.values("pooled"), strict=True)
        return {"latents": [latent.mean(dim=0) if pooled else latent for latent, pooled in rows]}


class FrameEncoder(_Encoder):
    """A robot's frames as its world model has them: each by itself, its latents normed over the width."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> FrameEncoder:
        """Read the encoder beside an action-conditioned predictor, strictly."""
        stored = read_world_model(checkpoint)
        encoder = load_encoder(stored, device=device, dtype=dtype)
        return cls(encoder, stored.shape, device=device, dtype=dtype)

    def look(self, batch: Batch) -> Gives:
        """``frames`` (T, 3, size, size) to ``past`` (T - 1, tokens, width) and ``latent`` (tokens, width)."""
        frames = [self._on_device(frames) for frames in batch.values("frames")]
        counts = [len(each) for each in frames]
        looked = torch.cat([self._look(some) for some in torch.cat(frames).split(self._most_frames)])
        scenes = looked.split(counts)
        return {"past": [scene[:-1] for scene in scenes], "latent": [scene[-1] for scene in scenes]}

    def pool(self, batch: Batch) -> Gives:
        """``latents`` (T, tokens, width): ``past`` and ``latent``; where ``pooled``, means (T, width)."""
        rows = zip(batch.values("past"), batch.values("latent"), batch.values("pooled"), strict=True)
        scenes = ((torch.cat([past, latent[None]]), pooled) for past, latent, pooled in rows)
        return {"latents": [scene.mean(dim=1) if pooled else scene for scene, pooled in scenes]}

    @property
    def _most_frames(self) -> int:
        return max(1, _MOST_TOKENS // self._shape.patches)

    def _look(self, frames: Tensor) -> Tensor:
        """(frames, 3, size, size) to (frames, tokens, width): each frame fills a tubelet of its own."""
        clips = frames[:, None].expand(-1, self._shape.tubelet, -1, -1, -1)
        latents = self._latents(clips)
        return layer_norm(latents, latents.shape[-1:])


def _dealt(latents: list[Any], rows: list[int], made: Tensor) -> list[Any]:
    for row, latent in zip(rows, made, strict=True):
        latents[row] = latent
    return latents
