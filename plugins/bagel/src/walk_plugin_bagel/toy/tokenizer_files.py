"""The toy's tokeniser: bytes, and what often stands side by side in its few texts."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from walk_plugin_bagel.text import BEGIN, BEGIN_OF_IMAGE, END, END_OF_IMAGE
from walk_plugin_bagel.toy.drawings import all_texts

VOCABULARY = 512
"""Rows of the model's table; the tokeniser has fewer entries."""


def write_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json`` into ``folder``."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END, BEGIN_OF_IMAGE, END_OF_IMAGE],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(all_texts(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
