"""BAGEL as its authors' application works a request off, on the plugin's own modules.

Contexts are three, each with keys and values of its own; one is copied to begin another. Every input goes
into each context that it belongs to, so that a prompt is read twice, and on each guided step the velocity of
the three is computed one after another, also where two of them are the same. Requests follow each other, and
a text is written a token at a time.

Nothing of a server is here: a call is one row, keys and values lie side by side, and what is new is put
behind them. What is compared is the order of work, and what a server costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from walk_plugin_bagel import Bagel
from walk_plugin_bagel.mot import BagelLM
from walk_plugin_bagel.pen import Pen
from walk_plugin_bagel.pictures import PictureReader
from walk_plugin_bagel.schedule import Schedule
from walk_plugin_bagel.solver import Solver
from walk_plugin_bagel.text import Tokenizer
from walk_plugin_bagel.vae import ImageVAE
from walk_plugin_bagel.vit import ImageViT
from walkserve_sdk import Checkpoint


@dataclass
class Context:
    """What has been read: (tokens, kv_heads, head_dim) of each layer, and the next position."""

    k: dict[int, Tensor] = field(default_factory=dict)
    v: dict[int, Tensor] = field(default_factory=dict)
    position: int = 0

    def copy(self) -> Context:
        k, v = ({layer: each.clone() for layer, each in one.items()} for one in (self.k, self.v))
        return Context(k, v, self.position)


class _Attention:
    """What a component meets as its cache: one context and so many new tokens."""

    def __init__(self, context: Context, tokens: int, *, keeps: bool) -> None:
        self.cu_seqlens = (0, tokens)
        self.positions = torch.empty(tokens)  # which nobody reads but for how many they are
        self._context = context
        self._keeps = keeps

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        context = self._context
        if layer in context.k:
            k, v = torch.cat([context.k[layer], k]), torch.cat([context.v[layer], v])
        if self._keeps:
            context.k[layer], context.v[layer] = k, v
        mask = None
        if causal and 1 < len(q) < len(k):
            mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
        seen = scaled_dot_product_attention(
            *(each.transpose(0, 1)[None] for each in (q, k, v)),
            attn_mask=mask,
            is_causal=causal and len(q) == len(k) > 1,
            enable_gqa=True,
        )
        return seen[0].transpose(0, 1)


class _Row:
    """What a component meets as its batch: one row."""

    size = 1

    def __init__(self, values: Mapping[str, Any], *, state: Any = None, options: Any = None) -> None:
        self._values = values
        self.state = [state]
        self.options = [options or Bagel.Options()]
        self.cache: Any = None

    def values(self, name: str) -> list[Any]:
        return [self._values[name]]

    def cat(self, name: str) -> Tensor:
        return torch.tensor(self._values[name])

    def last(self, hidden: Tensor) -> Tensor:
        return hidden[-1:]

    def sample(self, logits: Tensor, **_: Any) -> list[int]:
        return [int(logits[0].argmax())]


@dataclass(frozen=True)
class Painted:
    """A picture, and seconds by the clock of its sampling alone: from noise to latents."""

    pixels: NDArray[np.uint8]
    sampling_s: float
    forwards: int


class Authors:
    """Their application, with one checkpoint."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        checkpoint = Checkpoint({"main": folder}, "bench")
        on: dict[str, Any] = {"device": torch.device("cpu"), "dtype": dtype}
        self._tokenizer = Tokenizer.load(checkpoint, **on)
        self._reader = PictureReader.load(checkpoint, **on)
        self._vit = ImageViT.load(checkpoint, **on)
        self._vae = ImageVAE.load(checkpoint, **on)
        self._llm = BagelLM.load(checkpoint, **on)
        self._pen = Pen.load(checkpoint, **on)
        self._solver = Solver.load(checkpoint, **on)

    @torch.inference_mode()
    def paint(
        self,
        parts: Sequence[str | bytes],
        *,
        size: tuple[int, int],
        seed: int,
        schedule: Schedule,
        options: Any,
    ) -> Painted:
        """A picture of texts and files of images."""
        full, no_text, no_image = Context(), Context(), Context()
        state = None
        for part in parts:
            if isinstance(part, str):
                no_text = full.copy()
                for context in (full, no_image):
                    self._read_text(context, part)
                continue
            read = self._reader.read(_Row({"images": [part]}))
            asked = {"seed": seed, "size": read["vae_sizes"][0][0]}
            noise, state = self._solved("posterior", "noise", asked, state)
            latents = self._vae.encode(_Row({"pixels": read["for_vae"][0][0], "noise": noise}))["latents"][0]
            self._call(self._llm.prefill_vae, full, latents.shape[0] * latents.shape[1] + 2, latents=latents)
            self._look(full, read["for_vit"][0][0])
            no_text = full.copy()
        began = time.perf_counter()
        latents, state = self._solved("noise", "latents", {"seed": seed, "size": size}, state)
        forwards = 0
        for t, step, guided, by_images in zip(
            schedule.timesteps, schedule.steps, schedule.guided, schedule.guided_by_images, strict=True
        ):
            contexts = {"full": full, "no_text": no_text if guided else None}
            contexts["no_image"] = no_image if by_images else None
            velocities = {
                name: context and self._velocity(context, latents, t) for name, context in contexts.items()
            }
            forwards += sum(context is not None for context in contexts.values())
            latents = self._solver.step(
                _Row({"latents": latents, "t": t, "step": step, **velocities}, options=options)
            )["latents"][0]
        sampling_s = time.perf_counter() - began
        picture = self._vae.decode(_Row({"latents": latents}))["picture"][0]
        return Painted(picture.numpy(), sampling_s, forwards)

    @torch.inference_mode()
    def write(
        self, image: bytes, text: str, *, tokens: int, on_token: Callable[[], None] = lambda: None
    ) -> str:
        """So many tokens about an image and a text."""
        full, no_image = Context(), Context()
        read = self._reader.read(_Row({"images": [image]}))
        self._look(full, read["for_vit"][0][0])
        for context in (full, no_image):  # which is wasted here
            self._read_text(context, text)
        context, ids = full.copy(), self._pen.begin(_Row({}))["ids"][0]
        written: list[int] = []
        for _ in range(tokens):
            ids = self._call(self._llm.next, context, 1, ids=ids)["ids"]
            written += ids
            on_token()
        return self._pen.bytes(written).decode()

    def _read_text(self, context: Context, text: str) -> None:
        ids = self._tokenizer.block(text)
        self._call(self._llm.prefill_text, context, len(ids), ids=ids)

    def _look(self, context: Context, pixels: Tensor) -> None:
        seen = self._vit.look(_Row({"pixels": pixels}))["seen"][0]
        self._call(self._llm.prefill_vit, context, len(seen) + 2, seen=seen)

    def _velocity(self, context: Context, latents: Tensor, t: float) -> Tensor:
        tokens = latents.shape[0] * latents.shape[1] + 2
        given = self._call(self._llm.velocity, context, tokens, keeps=False, latents=latents, t=t)
        velocity: Tensor = given["velocity"][0]
        return velocity

    def _call(
        self,
        method: Callable[[Any], Any],
        context: Context,
        tokens: int,
        *,
        keeps: bool = True,
        **values: Any,
    ) -> Any:
        """One row of the language model."""
        row = _Row(values, state=context.position)
        row.cache = _Attention(context, tokens, keeps=keeps)
        given = method(row)
        (context.position,) = row.state
        return given

    def _solved(self, method: str, name: str, asked: Mapping[str, Any], state: Any) -> tuple[Tensor, Any]:
        """One row of the solver, whose state is its generator's."""
        row = _Row(asked, state=state)
        given = getattr(self._solver, method)(row)[name][0]
        return given, row.state[0]
