"""The prompt: a voice and a text between the markers the model was trained with."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer as TokenizerFile

from walk_plugin_orpheus.ids import custom, open_tokenizer
from walkserve_sdk import Batch, Checkpoint, Gives, LoadError


class Tokenizer:
    """Text to prompt ids, on the CPU.

    ``[start of human, begin of text] voice: text [end of text, end of human, start of AI, start of speech]``;
    the begin of text only where the tokeniser has one.
    """

    def __init__(self, tokenizer: TokenizerFile) -> None:
        end_of_text = tokenizer.token_to_id("<|eot_id|>")
        if end_of_text is None:
            raise LoadError("the tokeniser has no <|eot_id|>, so this is no checkpoint of Orpheus")
        begin_of_text = tokenizer.token_to_id("<|begin_of_text|>")
        self._tokenizer = tokenizer
        self._head = [custom(tokenizer, 3)] + ([begin_of_text] if begin_of_text is not None else [])
        self._tail = [end_of_text, *(custom(tokenizer, number) for number in (4, 5, 1))]

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> Tokenizer:
        return cls(open_tokenizer(checkpoint))

    def prompt(self, text: str, voice: str) -> list[int]:
        """Ids of the whole prompt."""
        words = self._tokenizer.encode(f"{voice}: {text}", add_special_tokens=False)
        return [*self._head, *words.ids, *self._tail]

    def encode(self, batch: Batch) -> Gives:
        prompts = [
            self.prompt(text, voice)
            for text, voice in zip(batch.values("text"), batch.values("voice"), strict=True)
        ]
        return {"ids": prompts, "length": [len(prompt) for prompt in prompts]}
