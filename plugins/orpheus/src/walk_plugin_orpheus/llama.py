"""The language model: a Llama that writes speech tokens, its layers from transformers, its cache in pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaModel, LlamaRotaryEmbedding

from walk_plugin_orpheus.frames import SLOTS
from walk_plugin_orpheus.ids import SpeechIds, read_model_type, read_speech_ids
from walkserve_sdk import Batch, CacheView, Checkpoint, Gives, KVShape, LoadError, causal
from walkserve_sdk.nn import (
    PackedLinear,
    load_strictly,
    pack_linears,
    read_safetensors,
    register_paged_attention,
)


class Weights(nn.Module):
    """The published key layout: ``model.…`` and ``lm_head.weight``."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._is_tied = config.tie_word_embeddings

    @property
    def head(self) -> Tensor:
        """(vocabulary, hidden_size): the embedding itself, where they are tied."""
        return self.model.embed_tokens.weight if self._is_tied else self.lm_head.weight


class Head:
    """The output layer: over the vocabulary, or over what is legal at one position of a frame.

    With a position of its own a row needs 4,096 of 156,940 logits, so these weights are held once more, each
    position's by itself.
    """

    def __init__(self, weight: Tensor, ids: SpeechIds) -> None:
        self._whole = PackedLinear(weight)
        self._legal = [legal.to(weight.device) for legal in _legal_by_slot(ids)]
        self._slots = [PackedLinear(weight[legal]) for legal in self._legal]

    def whole(self, hidden: Tensor) -> Tensor:
        """(rows, hidden_size) to (rows, vocabulary)."""
        return self._whole(hidden).float()

    def by_slot(
        self, hidden: Tensor, slots: Sequence[int | None]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Each row's logits, and which ids they are of; a row without a slot has the whole vocabulary."""
        logits: dict[int, Tensor] = {}
        for slot in set(slots):
            rows = [row for row, one in enumerate(slots) if one == slot]
            # as many rows as ``last`` pads to: a product gives a row the same bits then, whoever is beside it
            padded = hidden[rows + rows[-1:] * (-len(rows) % 4)]
            some = self._whole(padded) if slot is None else self._slots[slot](padded)
            logits |= zip(rows, some.float(), strict=False)
        return [logits[row] for row in range(len(slots))], [
            None if slot is None else self._legal[slot] for slot in slots
        ]


def _legal_by_slot(ids: SpeechIds) -> list[Tensor]:
    """At each position of a frame its codes, and between frames the end of speech."""
    codes = [torch.arange(ids.codebook_size) + ids.first + ids.codebook_size * slot for slot in range(SLOTS)]
    codes[0] = torch.cat([codes[0], torch.tensor([ids.end])]).sort().values
    return codes


class OrpheusLM:
    """Llama 3.2 (3B in the published checkpoint) over text and speech tokens."""

    def __init__(self, weights: Weights, config: LlamaConfig, ids: SpeechIds) -> None:
        self._trunk = weights.model
        pack_linears(self._trunk.layers)
        self.head = Head(weights.head, ids)
        self.ids = ids
        self.kv_shape = KVShape(
            layers=config.num_hidden_layers,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            context=config.max_position_embeddings,
        )

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> OrpheusLM:
        """Read the published layout, strictly; ``lm_head`` may be absent where it is tied."""
        folder = checkpoint.file("config.json").parent
        kind = read_model_type(checkpoint)
        if kind != "llama":
            raise LoadError(f"{folder / 'config.json'}: its model_type is {kind!r}; Orpheus is a 'llama'")
        config = LlamaConfig.from_pretrained(folder, attn_implementation=register_paged_attention())
        with torch.device("meta"):
            weights = Weights(config)
        load_strictly(
            weights,
            read_safetensors(folder),
            device=device,
            dtype=dtype,
            place=str(folder),
            optional=("lm_head.weight",) if config.tie_word_embeddings else (),
            ignored=lambda name: name.endswith("rotary_emb.inv_freq"),
        )
        weights.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)  # computed, not stored
        return cls(weights.eval().requires_grad_(False), config, read_speech_ids(checkpoint))

    @causal
    def next(self, batch: Batch) -> Gives:
        """Read what came last (the prompt, or the token just written) and write the next token."""
        hidden = batch.last(self.hidden(batch.cat("ids"), batch.cache))
        stop = {self.ids.end: "stop"}
        slots = [
            turn % SLOTS if options.constrain else None
            for options, turn in zip(batch.options, batch.turn, strict=True)
        ]
        if slots.count(None) == len(slots):
            return {"ids": batch.sample(self.head.whole(hidden), stop=stop, seen="ids")}
        logits, allow = self.head.by_slot(hidden, slots)
        return {"ids": batch.sample(logits, stop=stop, seen="ids", allow=allow)}

    def hidden(self, ids: Tensor, cache: CacheView) -> Tensor:
        """As ``hidden_states``."""
        return hidden_states(self._trunk, ids, cache)


def hidden_states(trunk: LlamaModel, ids: Tensor, cache: CacheView) -> Tensor:
    """The last layer's output, normalised: (tokens,) -> (tokens, hidden_size)."""
    hidden = trunk.embed_tokens(ids)[None]
    rotation = trunk.rotary_emb(hidden, cache.positions[None])
    for layer in trunk.layers:
        hidden = layer(hidden, position_embeddings=rotation, paged=cache)
    return trunk.norm(hidden)[0]
