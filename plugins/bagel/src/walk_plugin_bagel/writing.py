"""Text that is written token by token: whole characters, up to a marker that ends it.

A token is a few bytes, and a character may need several tokens. A text ends where a marker stands, even one
that ordinary tokens spell out; so what may yet become a marker is held back with what is half a character::

    tokens      "fo" "x<" "|im" "_x"        "fo" "x<" "|im_end|>" "y"
    written     fo   x    -     <|im_x      fo   x     -          -

Whatever the pieces, joined they are ``decode(all the bytes)`` up to the first marker.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace

from tokenizers import Tokenizer as TokenizerFile

from walkserve_sdk import LoadError

MARKERS = ("<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Written:
    """One text so far.

    Args:
        text: What has been given out.
        held: What may be the beginning of a marker.
        half: Bytes of a character that is not whole.
        is_over: A marker was found.
    """

    text: str = ""
    held: str = ""
    half: bytes = b""
    is_over: bool = False


def go_on(written: Written, new: bytes) -> tuple[Written, str]:
    """The text with a token's bytes behind it, and the piece that can be given out."""
    return _take(written, new, is_last=False)


def finish(written: Written) -> tuple[str, str]:
    """The whole text, and its last piece, when no more comes."""
    over, piece = _take(written, b"", is_last=True)
    return over.text, piece


def _take(written: Written, new: bytes, *, is_last: bool) -> tuple[Written, str]:
    if written.is_over:
        return written, ""
    characters, used = codecs.utf_8_decode(written.half + new, "replace", is_last)
    half = (written.half + new)[used:]
    text = written.held + characters
    ends = [at for marker in MARKERS if (at := text.find(marker)) >= 0]
    if ends:
        piece, held, is_over = text[: min(ends)], "", True
    else:
        safe = len(text) - (0 if is_last else _overlap(text))
        piece, held, is_over = text[:safe], text[safe:], False
    return replace(written, text=written.text + piece, held=held, half=half, is_over=is_over), piece


def _overlap(text: str) -> int:
    """How much of the end of a text may begin a marker."""
    longest = max(map(len, MARKERS)) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-size:]) for marker in MARKERS):
            return size
    return 0


def bytes_of_tokens(tokenizer: TokenizerFile) -> dict[int, bytes]:
    """By id, the bytes that a token stands for.

    Raises:
        LoadError: The vocabulary is not one of bytes.
    """
    byte_of = _byte_of_character()
    added = {id for id, token in tokenizer.get_added_tokens_decoder().items()}
    found: dict[int, bytes] = {}
    for token, id in tokenizer.get_vocab(with_added_tokens=True).items():
        if id in added:
            found[id] = token.encode()
            continue
        try:
            found[id] = bytes(byte_of[character] for character in token)
        except KeyError as strange:
            raise LoadError(
                f"the tokeniser's token {token!r} has {strange}, which stands for no byte: "
                "BAGEL's vocabulary is byte-level"
            ) from None
    return found


def _byte_of_character() -> dict[str, int]:
    """Byte-level vocabularies (GPT-2) write every byte as a character that can be seen."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}
