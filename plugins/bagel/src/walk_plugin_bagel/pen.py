"""The pen: the model's tokens as text, given out as they come. It is beside the model, not on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walk_plugin_bagel.text import BEGIN, open_tokenizer, special
from walk_plugin_bagel.writing import Written, bytes_of_tokens, finish, go_on
from walkserve_sdk import Batch, Checkpoint, Gives
from walkserve_sdk.nn import score_record


class Pen:
    """Tokens to whole characters. What a text is so far is its state."""

    def __init__(self, begin: int, spelled: dict[int, bytes]) -> None:
        self._begin = begin
        self._spelled = spelled

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: Any, dtype: Any) -> Pen:
        tokenizer = open_tokenizer(checkpoint)
        return cls(special(tokenizer, BEGIN), bytes_of_tokens(tokenizer))

    def bytes(self, ids: Sequence[int]) -> bytes:
        """What ids stand for, special tokens spelled out; a model may have ids that stand for nothing."""
        return b"".join(self._spelled.get(each, b"") for each in ids)

    def _spell(self, id: int) -> bytes:
        return self.bytes((id,))

    def begin(self, batch: Batch) -> Gives:
        """The ids with which the model is asked to write, ``ids``."""
        return {"ids": [[self._begin]] * batch.size}

    def write(self, batch: Batch) -> Gives:
        """What a row's newest id, ``ids``, adds to its text: ``piece``, whole characters, or None. Where the
        model told its ``scores``, also the ``score``, a record of them."""
        pieces: list[str | None] = []
        told = [None if each is None else score_record(each, self._spell) for each in batch.values("scores")]
        for row, new in enumerate(batch.values("ids")):
            batch.state[row], piece = go_on(batch.state[row] or Written(), self.bytes([new]))
            pieces.append(piece or None)
        return {"piece": pieces, "score": told}

    def finish(self, batch: Batch) -> Gives:
        """What was held back, ``rest`` or None, and the whole ``text``; the next text begins anew."""
        ended = [finish(state or Written()) for state in batch.state]
        for row in range(batch.size):
            batch.state[row] = None
        return {"rest": [rest or None for _, rest in ended], "text": [text for text, _ in ended]}
