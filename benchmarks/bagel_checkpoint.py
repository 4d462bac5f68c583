"""A BAGEL with random weights in the published layout, small enough for two cores.

The language model has 12 layers x 512 (8 heads, 2 of keys and values, 2,688 in between) in both its experts,
the ViT 11 x 192: as wide and as deep beside it as the published ones are beside each other. The VAE and the
vocabulary's 576 tokens are those of the plugin's tests. Images are made 256 pixels large, of which the VAE
makes 256 tokens, and the ViT as many of 224 pixels.

Of the head, only the rows of letters are not nothing. So what is written is text that can be shown as it
comes, and it never comes to an end of its own.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from walk_plugin_bagel.mot import Weights as Painter
from walk_plugin_bagel.settings import read_settings
from walk_plugin_bagel.vit import Weights as Looker
from walkserve_sdk import Checkpoint

TESTS = Path(__file__).parents[1] / "plugins" / "bagel" / "tests" / "data" / "golden"
"""A checkpoint of which the VAE, the tokeniser and all that is not said here are taken."""
SIDE = 256
LANGUAGE = {
    "hidden_size": 512,
    "intermediate_size": 2688,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
VISION = {
    "hidden_size": 192,
    "intermediate_size": 768,
    "num_hidden_layers": 12,  # of which the last is not there
    "num_attention_heads": 3,
}
PREPROCESSING = {
    "vae_transform": {"max_size": SIDE, "min_size": SIDE // 2, "stride": 16},
    "vit_transform": {"max_size": 224, "min_size": 112, "stride": 14},
}


def make_checkpoint(folder: Path) -> None:
    """Write all of its files into ``folder``; 0.3 GB."""
    for name in ("ae.safetensors", "config.json", "tokenizer.json"):
        shutil.copy(TESTS / name, folder)
    for name, own in (("llm_config.json", LANGUAGE), ("vit_config.json", VISION)):
        said = json.loads((TESTS / name).read_text()) | own
        (folder / name).write_text(json.dumps(said))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    # the tables of positions, which say how large images can be, have the sizes that these have
    save_file(_tables(), folder / "ema.safetensors")
    settings = read_settings(Checkpoint({"main": folder}, "bench"))
    torch.manual_seed(0)
    tensors = Painter(settings).state_dict() | Looker(settings).state_dict()
    for name, tensor in tensors.items():
        _begin(name, tensor)
    head = tensors["language_model.lm_head.weight"]
    head[~_letters(folder, len(head))] = 0
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "ema.safetensors")


def _tables() -> dict[str, Tensor]:
    glue = json.loads((TESTS / "config.json").read_text())
    sides = {
        "latent_pos_embed": glue["max_latent_size"],
        "vit_pos_embed": glue["vit_max_num_patch_per_side"],
    }
    width = LANGUAGE["hidden_size"]
    return {f"{name}.pos_embed": torch.zeros(side * side, width) for name, side in sides.items()}


def _begin(name: str, tensor: Tensor) -> None:
    """As large as keeps what goes through about as large as it was.

    Attention is sharp, so that what is written goes on from what has been, and does not say one word for
    ever.
    """
    if name.endswith("bias"):
        tensor.zero_()
    elif tensor.dim() == 1:
        tensor.fill_(4 if ".q_norm" in name else 1)
    elif "embed" in name.rpartition(".")[2] or "embed_tokens" in name:
        torch.nn.init.normal_(tensor, std=0.1)
    else:
        torch.nn.init.normal_(tensor, std=tensor.shape[1] ** -0.5)


def _letters(folder: Path, rows: int) -> Tensor:
    """Which ids stand for letters and nothing else."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = (tokenizer.id_to_token(id) or "" for id in range(rows))
    return torch.tensor([token.isascii() and token.isalpha() for token in tokens])
