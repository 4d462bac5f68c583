"""The language model: it reads text and images, writes text, and says which way a noisy picture has to go.

A branch of its cache has a cursor: the rotary position of what comes next. Text moves it on by its tokens, an
image, whose tokens all have one position, by one. It is the component's state: committed with the tokens it
counts, and shared by a fork as their pages are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import log

import torch
from torch import Tensor, nn

from walk_plugin_bagel.decoder import SUFFIX, Decoder, Layer, Share
from walk_plugin_bagel.loading import PAINTER, load_part
from walk_plugin_bagel.positions import PositionTable
from walk_plugin_bagel.settings import Language, Settings, read_settings
from walk_plugin_bagel.text import BEGIN, BEGIN_OF_IMAGE, END, END_OF_IMAGE, delimiters, open_tokenizer
from walkserve_sdk import Batch, CacheView, Checkpoint, Gives, KVShape, causal, token_count
from walkserve_sdk.nn import pack_linears, scores_of

_TILE = 4
"""A product of matrices gives a row the same bits in any batch whose size is a multiple of this."""
_FREQUENCIES = 128


class _Language(nn.Module):
    def __init__(self, said: Language) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(said.vocab_size, said.hidden_size)
        self.model.layers = nn.ModuleList([Layer(said) for _ in range(said.num_hidden_layers)])
        for suffix in SUFFIX.values():
            self.model.add_module("norm" + suffix, nn.RMSNorm(said.hidden_size, eps=said.rms_norm_eps))
        self.lm_head = nn.Linear(said.hidden_size, said.vocab_size, bias=False)


class _TimeEmbedder(nn.Module):
    """How noisy a picture is, as a vector: a time of 0 to 1 to (1, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * _FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, time: float, device: torch.device) -> Tensor:
        steps = torch.arange(_FREQUENCIES, device=device, dtype=torch.float32) / _FREQUENCIES
        angles = time * torch.exp(-log(10_000) * steps)
        return self.mlp(torch.cat([angles.cos(), angles.sin()]).to(self.mlp[0].weight.dtype)[None])


class Weights(nn.Module):
    """The published key layout."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.language.hidden_size
        self.language_model = _Language(settings.language)
        self.time_embedder = _TimeEmbedder(width)
        self.vae2llm = nn.Linear(settings.latent_channels, width)
        self.llm2vae = nn.Linear(width, settings.latent_channels)
        self.latent_pos_embed = PositionTable(settings.latent_side, width)


class BagelLM:
    """Qwen2 (7B in the published checkpoint) with an expert for text and sight and one for painting."""

    def __init__(self, weights: Weights, said: Language, ids: dict[str, int]) -> None:
        model = weights.language_model.model
        self._weights = weights
        self._embed = model.embed_tokens
        self._device, self._dtype = self._embed.weight.device, self._embed.weight.dtype
        self._decoder = Decoder(model.layers, said, self._device)
        self._norm, self._norm_painted = model.norm, model.norm_moe_gen
        self._head = weights.language_model.lm_head
        self._delimiters = torch.tensor([ids[BEGIN_OF_IMAGE], ids[END_OF_IMAGE]], device=self._device)
        # A text ends there for who reads it, also where it begins anew: what follows is not shown.
        self._stop = {ids[END]: "stop", ids[BEGIN]: "stop"}
        self.kv_shape = KVShape(
            layers=said.num_hidden_layers,
            kv_heads=said.num_key_value_heads,
            head_dim=said.head_dim,
            context=said.max_position_embeddings,
        )

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> BagelLM:
        """Read its tensors of ``ema.safetensors``, strictly."""
        settings, tokenizer = read_settings(checkpoint), open_tokenizer(checkpoint)
        with torch.device("meta"):
            weights = Weights(settings)
        load_part(weights, checkpoint, PAINTER, device=device, dtype=dtype)
        pack_linears(weights.language_model)
        return cls(weights, settings.language, delimiters(tokenizer))

    # --- reading ----------------------------------------------------------------------------------

    @causal
    def prefill_text(self, batch: Batch) -> Gives:
        """Read a block of text, ``ids``."""
        self._read(batch)
        return {}

    @token_count(lambda self, seen, **_: len(seen) + 2)
    def prefill_vit(self, batch: Batch) -> Gives:
        """Read an image as the ViT has seen it: ``seen``, (tokens, width), between its delimiters."""
        begin, end = self._embed(self._delimiters).split(1)
        rows = batch.values("seen")
        packed = torch.cat([piece for seen in rows for piece in (begin, seen.to(begin), end)])
        padded = len(batch.cache.positions) - len(packed)
        share = Share("understands", None, torch.cat([packed, packed.new_zeros(padded, packed.shape[1])]))
        self._decoder.run([share], self._ropes_of_images(batch), batch.cache, causal=False)
        self._advance(batch, [1] * batch.size)
        return {}

    @token_count(lambda self, latents, **_: latents.shape[0] * latents.shape[1] + 2)
    def prefill_vae(self, batch: Batch) -> Gives:
        """Read an image as the VAE has it: ``latents``, (rows, columns, numbers), between its delimiters."""
        self._paint(batch, [0.0] * batch.size)
        self._advance(batch, [1] * batch.size)
        return {}

    # --- writing ----------------------------------------------------------------------------------

    @causal
    def next(self, batch: Batch) -> Gives:
        """Read what came last, ``ids``, and write the next token, ``ids``; of rows that ask, ``scores``: how
        likely it was, and which others were."""
        logits = self._logits(batch.last(self._read(batch)))
        drawn = batch.sample(logits, stop=self._stop, seen="ids")
        asked = [options.top_logprobs for options in batch.options]
        scores = [
            None if top is None or token is None else scores_of(logits[row], token, top)
            for row, (token, top) in enumerate(zip(drawn, asked, strict=True))
        ]
        return {"ids": drawn, "scores": scores}

    def logits(self, batch: Batch) -> Tensor:
        """Read ``ids``; what may follow each of them: (tokens, vocabulary), float32. For training."""
        return self._logits(self._read(batch))

    # --- painting ---------------------------------------------------------------------------------

    @token_count(lambda self, latents, **_: latents.shape[0] * latents.shape[1] + 2)
    def velocity(self, batch: Batch) -> Gives:
        """Where noise lies from what ``latents`` are at the time ``t``, which goes from 1, noise, to 0.

        ``latents`` is a grid (rows, columns, numbers), ``velocity`` one like it, float32. Nothing is to be
        kept: the next step comes with other latents.
        """
        painted = self._weights.llm2vae(self._norm_painted(self._paint(batch, batch.values("t")))).float()
        grids = [latents.shape for latents in batch.values("latents")]
        ends = list(accumulate((shape[0] * shape[1] for shape in grids), initial=0))
        rows = zip(pairwise(ends), grids, strict=True)
        return {"velocity": [painted[start:stop].view(shape) for (start, stop), shape in rows]}

    # --- how --------------------------------------------------------------------------------------

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._head(self._norm(hidden)).float()

    def _read(self, batch: Batch) -> Tensor:
        """Text: (tokens, width), not yet normalised."""
        share = Share("understands", None, self._embed(batch.cat("ids")))
        lengths = _lengths(batch.cache)
        ropes = [
            at + new
            for at, length in zip(self._cursors(batch), lengths, strict=True)
            for new in range(length)
        ]
        self._decoder.run([share], self._padded(ropes, batch.cache), batch.cache, causal=True)
        self._advance(batch, lengths)
        return share.hidden

    def _paint(self, batch: Batch, times: Sequence[float]) -> Tensor:
        """Blocks of latents: (latent tokens, width), not yet normalised; may be padded."""
        grids = batch.values("latents")
        inner, outer = _places(batch.cache, self._device)
        latents = torch.cat([grid.to(self._device, self._dtype).flatten(0, 1) for grid in grids])
        order = _tiled(torch.arange(len(latents), device=self._device))
        # added up in the authors' order, and so with their rounding
        painted = self._weights.vae2llm(latents[order]) + self._at_times(times, grids)[order]
        shares = [
            Share("understands", _tiled(outer), self._embed(_tiled(self._delimiters.repeat(len(grids))))),
            Share("paints", _tiled(inner), painted + self._in_places(grids)[order]),
        ]
        self._decoder.run(shares, self._ropes_of_images(batch), batch.cache, causal=False)
        return shares[1].hidden

    def _at_times(self, times: Sequence[float], grids: Sequence[Tensor]) -> Tensor:
        """(latent tokens, width): each time by itself, so that its bits do not depend on who else is here."""
        embedded = {time: self._weights.time_embedder(time, self._device) for time in set(times)}
        pairs = zip(times, grids, strict=True)
        return torch.cat([embedded[time].expand(grid.shape[0] * grid.shape[1], -1) for time, grid in pairs])

    def _in_places(self, grids: Sequence[Tensor]) -> Tensor:
        """(latent tokens, width)."""
        return torch.cat([self._weights.latent_pos_embed.of_grid(*grid.shape[:2]) for grid in grids])

    def _cursors(self, batch: Batch) -> list[int]:
        return [state or 0 for state in batch.state]

    def _advance(self, batch: Batch, by: Sequence[int]) -> None:
        for row, (cursor, more) in enumerate(zip(self._cursors(batch), by, strict=True)):
            batch.state[row] = cursor + more

    def _ropes_of_images(self, batch: Batch) -> Tensor:
        cursors = zip(self._cursors(batch), _lengths(batch.cache), strict=True)
        return self._padded([at for at, length in cursors for _ in range(length)], batch.cache)

    def _padded(self, ropes: list[int], cache: CacheView) -> Tensor:
        padded = ropes + [0] * (len(cache.positions) - len(ropes))
        return torch.tensor(padded, device=self._device)


def _lengths(cache: CacheView) -> list[int]:
    """New tokens of each row."""
    return [stop - start for start, stop in pairwise(cache.cu_seqlens)]


def _places(cache: CacheView, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of blocks of images side by side, where what is inside stands, and where the delimiters.

    [ x x x ] [ x x ]        inside 1 2 3, 6 7; delimiters 0 4, 5 8
    """
    rows = list(pairwise(cache.cu_seqlens))
    inside = torch.cat([torch.arange(start + 1, stop - 1, device=device) for start, stop in rows])
    return inside, torch.tensor([at for start, stop in rows for at in (start, stop - 1)], device=device)


def _tiled(places: Tensor) -> Tensor:
    """Padded by repeating the last."""
    return torch.cat([places, places[-1:].expand(-len(places) % _TILE)])
