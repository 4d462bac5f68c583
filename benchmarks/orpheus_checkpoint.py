"""A checkpoint of Orpheus' ids and of SNAC's true size with random weights, small enough for two cores.

The language model is a Llama of 8 layers x 512 (8 heads, 4 of keys and values, 1,536 in between) under the
published vocabulary of 156,940; the codec is snac_24khz, 19.8 M weights. The weights are random, but shaped
so that speech comes out of them without anybody's help:

* seven of the 512 directions say at which position of its frame a token stands, and the head answers with the
  codes of the next position: +30 in the logits, where everything else is spread by 1.5. All that top-p 0.8
  keeps is therefore legal, whether or not somebody masks the rest.
* the end of speech is among the rest, so it is never drawn, and an utterance is as long as is asked.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from snac import SNAC
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, KV_HEADS, BETWEEN, VOCABULARY = 8, 512, 8, 4, 1536, 156_940
BEGIN_OF_TEXT, END_OF_TEXT, CUSTOM_0 = 128_000, 128_009, 128_256
START_OF_SPEECH, PAD, FIRST_CODE = CUSTOM_0 + 1, CUSTOM_0 + 7, CUSTOM_0 + 10
SLOTS, CODES = 7, 4096
FRAME_SAMPLES, RATE = 2048, 24_000

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": BETWEEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": BEGIN_OF_TEXT,
    "eos_token_id": END_OF_TEXT,
    "pad_token_id": PAD,
    "dtype": "float32",
}
SNAC_24KHZ = {
    "sampling_rate": RATE,
    "encoder_dim": 48,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 1024,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": CODES,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}


def make_checkpoint(folder: Path) -> None:
    """Write it into ``folder``, which holds it already if it was written before."""
    done = folder / "made"
    if done.exists():
        return
    (folder / "snac").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "snac" / "config.json").write_text(json.dumps(SNAC_24KHZ))
    _tokenizer().save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    save_file(_language(), folder / "model.safetensors", metadata={"format": "pt"})
    torch.save(SNAC(**SNAC_24KHZ).state_dict(), folder / "snac" / "pytorch_model.bin")
    done.touch()


def codes_of(slot: int) -> slice:
    """The ids of the audio codes of one position of a frame."""
    return slice(FIRST_CODE + CODES * slot, FIRST_CODE + CODES * (slot + 1))


def _language() -> dict[str, torch.Tensor]:
    embedded, head = torch.randn(VOCABULARY, HIDDEN), torch.randn(VOCABULARY, HIDDEN) * 2 * HIDDEN**-0.5
    embedded[START_OF_SPEECH, SLOTS - 1] += 20.0
    for slot in range(SLOTS):
        embedded[codes_of(slot), slot] += 20.0
        head[codes_of((slot + 1) % SLOTS), slot] += 2.0
    tensors = {
        "model.embed_tokens.weight": embedded,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head,
    }
    kept = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("self_attn.q_proj", HIDDEN, HIDDEN),
            ("self_attn.k_proj", kept, HIDDEN),
            ("self_attn.v_proj", kept, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN),
            ("mlp.gate_proj", BETWEEN, HIDDEN),
            ("mlp.up_proj", BETWEEN, HIDDEN),
            ("mlp.down_proj", HIDDEN, BETWEEN),
        ):
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.randn(rows, columns) * 0.02
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.ones(HIDDEN)
    return tensors


def _tokenizer() -> Tokenizer:
    """A byte is a token; the tokens with a meaning have their published ids."""
    named = {"<|begin_of_text|>": BEGIN_OF_TEXT, "<|eot_id|>": END_OF_TEXT}
    named |= {f"<custom_token_{number}>": CUSTOM_0 + number for number in range(11)}
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet | named, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name) for name in named])
    return tokenizer
