"""The language model: a Llama that writes speech tokens, its layers from transformers, its cache in pages."""

from __future__ import annotations

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


class OrpheusLM:
    """Llama 3.2 (3B in the published checkpoint) over text and speech tokens."""

    def __init__(self, weights: Weights, config: LlamaConfig, ids: SpeechIds) -> None:
        self.trunk = weights.model
        pack_linears(weights.model.layers)
        tied = weights.model.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = PackedLinear(weights.lm_head.weight if tied is None else tied)
        self.ids = ids
        self.kv_shape = KVShape(
            layers=config.num_hidden_layers,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            context=config.max_position_embeddings,
        )
        self._legal = self._legal_by_position()

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
        logits = self.head(hidden).float()
        stop = {self.ids.end: "stop"}
        return {"ids": batch.sample(logits, stop=stop, seen="ids", allow=self.legal(batch))}

    def hidden(self, ids: Tensor, cache: CacheView) -> Tensor:
        """The last layer's output, normalised: (tokens,) -> (tokens, hidden_size)."""
        hidden = self.trunk.embed_tokens(ids)[None]
        rotation = self.trunk.rotary_emb(hidden, cache.positions[None])
        for layer in self.trunk.layers:
            hidden = layer(hidden, position_embeddings=rotation, paged=cache)
        return self.trunk.norm(hidden)[0]

    def legal(self, batch: Batch) -> list[Tensor | None] | None:
        """What rows with ``constrain`` may draw: codes of their frame position, and the end of speech between
        frames; None where no row asks for it."""
        if not any(options.constrain for options in batch.options):
            return None
        return [
            self._legal[turn % SLOTS] if options.constrain else None
            for options, turn in zip(batch.options, batch.turn, strict=True)
        ]

    def _legal_by_position(self) -> list[Tensor]:
        size, first = self.ids.codebook_size, self.ids.first
        codes = [torch.arange(first + size * slot, first + size * (slot + 1)) for slot in range(SLOTS)]
        codes[0] = torch.cat([codes[0], torch.tensor([self.ids.end])]).sort().values
        return [ids.to(self.trunk.embed_tokens.weight.device) for ids in codes]
