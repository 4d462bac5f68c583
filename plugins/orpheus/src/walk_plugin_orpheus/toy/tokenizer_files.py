"""The toy's tokeniser: a text is its UTF-8 bytes, and markers have the published names and order.

0 … 255     the bytes
256         <|eot_id|>, end of text
257, 258    never used; with them the vocabulary has 768 rows
259 + k     <custom_token_k>, k = 0 … 508
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

END_OF_TEXT, END_OF_TEXT_ID = "<|eot_id|>", 256
CUSTOM_TOKENS = 509
VOCABULARY = 768
VOICES = ("tara", "leo")


def write_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``voices.json`` into ``folder``."""
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "voices.json").write_text(json.dumps({"voices": VOICES, "tags": []}) + "\n")


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE without a single merge, so that the id of a byte is the byte."""
    tokenizer = Tokenizer(
        BPE(vocab={character: byte for byte, character in enumerate(_byte_characters())}, merges=[])
    )
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    markers = (
        END_OF_TEXT,
        "<unused_0>",
        "<unused_1>",
        *(f"<custom_token_{k}>" for k in range(CUSTOM_TOKENS)),
    )
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    return tokenizer


def _byte_characters() -> list[str]:
    """The character that byte-level BPE has for each byte (Radford et al. 2019, GPT-2's encoder).

    A byte that prints as Latin-1 is its own character; the others are, in order, those from U+0100 on.
    """
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(0x100 + hidden.index(byte)) for byte in range(256)]
