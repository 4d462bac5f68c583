"""How audio-code tokens become frames of codes.

Orpheus writes speech as frames of seven tokens. Which slot of a frame a token belongs to is part of
its id, so a token either fits the slot that is next or it does not:

    token id = first_code + codebook_size * slot + code

The seven codes of a frame go to SNAC's three codebooks, one coarse, two middle, four fine, in the
order in which they sound:

    slot        0    1    2    3    4    5    6
    codebook    0    1    2    2    1    2    2
"""

from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 7
CODEBOOK_SLOTS = ((0,), (1, 4), (2, 3, 5, 6))
"""For each codebook, coarse to fine, the slots of a frame it takes its codes from."""

Frame = tuple[int, ...]
"""The seven codes of one frame, each ``0 <= code < codebook_size``, in slot order."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """What ``align`` made of some tokens.

    Attributes:
        frames: The frames that are complete now.
        partial: The codes of the frame that is not, fewer than seven; hand it to the next call.
        dropped: How many tokens belong to no frame, those of a frame given up among them.
    """

    frames: list[Frame]
    partial: tuple[int, ...]
    dropped: int


def align(tokens: Sequence[int], partial: tuple[int, ...], *, first_code: int, codebook_size: int) -> Aligned:
    """Sort ``tokens`` into frames, after the ``partial`` frame of the call before.

    A token that does not fit the next slot spoils the frame it stands in: a frame with a hole cannot be
    spoken, and its later codes would sound at the wrong time. So the wrong token is dropped together with
    what the frame had until then, and reading goes on at the next token of slot 0. A wrong token that is
    itself of slot 0 is not dropped: it starts that next frame. Splitting the tokens over several calls
    changes nothing. Code 0 is a code like any other.

    A token that is no audio code counts as wrong too: take the end of speech out before. What is left in
    ``partial`` at the end of an utterance is for the caller to count.

    Args:
        tokens: Token ids as the language model gave them.
        partial: ``Aligned.partial`` of the call before, ``()`` at the start.
        first_code: Id of code 0 in slot 0, that is of ``<custom_token_10>``.
        codebook_size: Codes per codebook.
    """
    frames: list[Frame] = []
    frame = partial
    dropped = 0
    for token in tokens:
        slot, code = divmod(token - first_code, codebook_size)
        if slot == len(frame):
            frame = (*frame, code)
        elif slot == 0:
            dropped += len(frame)
            frame = (code,)
        else:
            dropped += len(frame) + 1
            frame = ()
        if len(frame) == SLOTS:
            frames.append(frame)
            frame = ()
    return Aligned(frames, frame, dropped)
