"""Which token ids mean what: read from a checkpoint's tokeniser, never from ``config.eos_token_id``."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import Tokenizer

from walkserve_sdk import Checkpoint, LoadError


@dataclass(frozen=True)
class SpeechIds:
    """The ids of speech.

    Args:
        end: End of speech, ``<custom_token_2>``.
        first: ``<custom_token_10>``: code c at frame position p is ``first + codebook_size * p + c``.
    """

    end: int
    first: int
    codebook_size: int


def open_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's ``tokenizer.json``. What a client writes is text to it, also ``<custom_token_2>``.

    Raises:
        LoadError: The file is missing or no tokeniser.
    """
    path = checkpoint.file("tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise LoadError(f"{path} is no tokeniser: {error}") from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def custom(tokenizer: Tokenizer, number: int) -> int:
    """The id of ``<custom_token_N>``."""
    found = tokenizer.token_to_id(f"<custom_token_{number}>")
    if found is None:
        raise LoadError(f"the tokeniser has no <custom_token_{number}>, so this is no checkpoint of Orpheus")
    return int(found)


def read_speech_ids(checkpoint: Checkpoint) -> SpeechIds:
    """Read them from the tokeniser and the codec's configuration."""
    tokenizer = open_tokenizer(checkpoint)
    path = checkpoint.file("config.json", "snac")
    try:
        codebook_size = int(json.loads(path.read_text())["codebook_size"])
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} does not say codebook_size: {error!r}") from error
    return SpeechIds(custom(tokenizer, 2), custom(tokenizer, 10), codebook_size)
