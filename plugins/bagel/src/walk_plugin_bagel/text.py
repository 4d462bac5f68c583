"""Text to ids: a tokeniser, its special tokens by name, and blocks of text as the model reads them."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer as TokenizerFile

from walkserve_sdk import Batch, Checkpoint, Gives, LoadError

BEGIN, END = "<|im_start|>", "<|im_end|>"
BEGIN_OF_IMAGE, END_OF_IMAGE = "<|vision_start|>", "<|vision_end|>"


def open_tokenizer(checkpoint: Checkpoint) -> TokenizerFile:
    """The checkpoint's ``tokenizer.json``.

    Raises:
        LoadError: The file is missing or no tokeniser.
    """
    path = checkpoint.file("tokenizer.json")
    try:
        return TokenizerFile.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise LoadError(f"{path} is no tokeniser: {error}") from error


def special(tokenizer: TokenizerFile, name: str) -> int:
    """The id of a special token, by its name: ids differ from checkpoint to checkpoint."""
    found = tokenizer.token_to_id(name)
    if found is None:
        raise LoadError(f"the tokeniser has no {name}, so this is no checkpoint of BAGEL")
    return int(found)


def delimiters(tokenizer: TokenizerFile) -> dict[str, int]:
    """The ids of what begins and ends a text and an image, by name."""
    return {name: special(tokenizer, name) for name in (BEGIN, END, BEGIN_OF_IMAGE, END_OF_IMAGE)}


class Tokenizer:
    """Text to blocks of ids, on the CPU."""

    def __init__(self, tokenizer: TokenizerFile) -> None:
        self._tokenizer = tokenizer
        self._begin, self._end = special(tokenizer, BEGIN), special(tokenizer, END)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> Tokenizer:
        return cls(open_tokenizer(checkpoint))

    def ids(self, text: str) -> list[int]:
        """Ids of a text, verbatim: without a template, and special tokens that it spells out are those."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def block(self, text: str) -> list[int]:
        """Ids of a text between the tokens that begin and end it."""
        return [self._begin, *self.ids(text), self._end]

    def encode(self, batch: Batch) -> Gives:
        """A block of each row's ``text``, ``ids``."""
        return {"ids": [self.block(text) for text in batch.values("text")]}

    def encode_all(self, batch: Batch) -> Gives:
        """A block of each of a row's ``texts``, ``blocks``."""
        return {"blocks": [[self.block(text) for text in texts] for texts in batch.values("texts")]}
