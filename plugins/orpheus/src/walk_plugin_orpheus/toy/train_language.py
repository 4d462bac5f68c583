"""How the toy's language model is trained: the served module itself, on prompts and composed frames."""

import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention
from transformers import LlamaConfig

from walk_plugin_orpheus.frames import Frame
from walk_plugin_orpheus.ids import SpeechIds
from walk_plugin_orpheus.llama import Weights, hidden_states
from walk_plugin_orpheus.text import Tokenizer
from walk_plugin_orpheus.toy.dialled import asked_for, is_held_out, some_digits
from walk_plugin_orpheus.toy.schedule import Schedule
from walk_plugin_orpheus.toy.tokenizer_files import END_OF_TEXT_ID, VOCABULARY, VOICES
from walk_plugin_orpheus.toy.train_codec import composed
from walkserve_sdk.nn import register_paged_attention

STEPS = 940
_ROWS = 16
_NO_TARGET = -100  # what cross_entropy leaves out


class TrainingCache:
    """A ``CacheView`` that holds nothing and lets gradients through: whole sequences, each of them new.

    Rows are padded on the right to one length, so that causal attention never sees the padding.
    """

    def __init__(self, rows: int, length: int) -> None:
        self.lengths: Sequence[int] = [0] * rows
        self.cu_seqlens: Sequence[int] = list(accumulate([length] * rows, initial=0))
        self.positions = torch.arange(length).repeat(rows)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, scale: float | None = None
    ) -> Tensor:
        # (tokens, heads, head_dim) -> (rows, heads, length, head_dim)
        q, k, v = (each.unflatten(0, (len(self.lengths), -1)).transpose(1, 2) for each in (q, k, v))
        attended = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
        return attended.transpose(1, 2).flatten(0, 1)


def toy_config(ids: SpeechIds) -> LlamaConfig:
    """The published layout at a size of 1 MB."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=ids.end,
        pad_token_id=END_OF_TEXT_ID,
        dtype="bfloat16",
        attn_implementation=register_paged_attention(),
    )


def train_language(
    config: LlamaConfig,
    tokenizer: Tokenizer,
    ids: SpeechIds,
    alone: dict[str, list[Frame]],
    seed: int,
    *,
    steps: int = STEPS,
) -> Weights:
    """Train from nothing to dial what a text asks for.

    Args:
        config: Of the model, as it will be saved.
        tokenizer: For the prompts.
        ids: For the answers.
        alone: The frames of each digit dialled alone.
        seed: Of weights and texts.
        steps: Of 16 texts each.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    weights = Weights(config)
    schedule = Schedule(list(weights.model.parameters()), steps=steps, rate=3e-3, betas=(0.9, 0.95))
    began = time.perf_counter()
    for step in range(steps):
        examples = [_example(tokenizer, ids, alone, random) for _ in range(_ROWS)]
        read, targets = pack(examples)
        hidden = hidden_states(weights.model, read.flatten(), TrainingCache(*read.shape))
        is_target = targets.flatten() != _NO_TARGET
        logits = linear(hidden[is_target], weights.head)
        loss = cross_entropy(logits, targets.flatten()[is_target])
        schedule.step(loss)
        if step % 100 == 0 or step == steps - 1:
            right = float((logits.argmax(dim=1) == targets.flatten()[is_target]).float().mean())
            print(
                f"language {step:5d}/{steps}  loss {loss.item():.4f}  next token right {right:.4f}"
                f"  {time.perf_counter() - began:.0f} s",
                flush=True,
            )
    return weights.eval()


def _example(
    tokenizer: Tokenizer, ids: SpeechIds, alone: dict[str, list[Frame]], random: np.random.Generator
) -> tuple[list[int], list[int]]:
    """A prompt and its answer."""
    digits = some_digits(random)
    while is_held_out(digits):
        digits = some_digits(random)
    voice = VOICES[random.integers(0, len(VOICES))]
    return tokenizer.prompt(asked_for(digits, random), voice), answer(composed(alone, digits), ids)


def answer(frames: list[Frame], ids: SpeechIds) -> list[int]:
    """The tokens that say ``frames``: what ``walk_plugin_orpheus.frames`` reads, and the end of speech."""
    codes = (
        ids.first + ids.codebook_size * slot + code for frame in frames for slot, code in enumerate(frame)
    )
    return [*codes, ids.end]


def pack(examples: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """What the model reads and, for each position, what is to follow.

        read       p p p p a a a 0 0
        targets    . . . a a a e . .

    Returns:
        Two tensors of (rows, longest), int64.
    """
    length = max(len(prompt) + len(reply) for prompt, reply in examples) - 1
    read = torch.zeros(len(examples), length, dtype=torch.int64)
    targets = torch.full_like(read, _NO_TARGET)
    for row, (prompt, reply) in enumerate(examples):
        whole = torch.tensor([*prompt, *reply])
        read[row, : len(whole) - 1] = whole[:-1]
        targets[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
    return read, targets


def save_language(weights: Weights, config: LlamaConfig, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``, 16 bits, in the published layout."""
    config.save_pretrained(folder)
    stored = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in weights.state_dict().items()
        if name != "lm_head.weight"  # tied
    }
    (folder / "model.safetensors").write_bytes(save(stored, metadata={"format": "pt"}))
