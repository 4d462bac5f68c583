"""Which token ids mean what: read from a checkpoint's tokeniser, never from ``config.eos_token_id``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

from tokenizers import Tokenizer

from walkserve_sdk import Checkpoint, LoadError

Setting = TypeVar("Setting", int, str)


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
        said = json.loads(path.read_text("utf-8"))
        for token in said["added_tokens"]:  # the published file calls <custom_token_N> ordinary ones
            token["special"] = True
        tokenizer = Tokenizer.from_str(json.dumps(said))
    except Exception as error:  # tokenizers raises Exception itself
        raise LoadError(f"{path} is no tokeniser: {error}") from error
    tokenizer.encode_special_tokens = True  # that is, as the text they are
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
    codebook_size = _read_setting(checkpoint, "snac", "codebook_size", int)
    return SpeechIds(custom(tokenizer, 2), custom(tokenizer, 10), codebook_size)


def read_model_type(checkpoint: Checkpoint) -> str:
    """What the language model's ``config.json`` says it is."""
    return _read_setting(checkpoint, "main", "model_type", str)


def _read_setting(checkpoint: Checkpoint, part: str, name: str, kind: type[Setting]) -> Setting:
    path = checkpoint.file("config.json", part)
    try:
        said = json.loads(path.read_text("utf-8"))[name]
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} does not say {name}: {error!r}") from error
    if not isinstance(said, kind):
        raise LoadError(f"{path}: {name} is {said!r}, which is no {kind.__name__}")
    return said
