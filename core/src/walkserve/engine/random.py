"""Random numbers that a key decides: the same key gives the same number, anywhere.

A draw is keyed by everything that tells it from every other (seed, fan index,
track, Walk, turn, draw within the call), so it depends neither on the batch it
happens in nor on what was drawn before. There is no generator and no state, and
Python's ``hash`` is not used, which differs from process to process.
"""

from hashlib import blake2b


def uniform(*key: int | str) -> float:
    """Draw from [0, 1): a multiple of 2^-53, as a float holds it exactly."""
    return (_digest(b"uniform", key) >> 11) * 2.0**-53


def key63(*key: int | str) -> int:
    """Draw from 0 to 2^63 - 1: the seed for what needs a generator of its own, such as noise."""
    return _digest(b"key63", key) >> 1


def _digest(purpose: bytes, key: tuple[int | str, ...]) -> int:
    """64 bits of BLAKE2b, personalised by purpose, over a packing that no two keys share.

    Each part is packed as ``i`` or ``s``, the number of bytes that follow (4 bytes,
    little-endian), and the bytes: two's complement little-endian, or UTF-8.
    """
    hashed = blake2b(digest_size=8, person=purpose)
    for part in key:
        if isinstance(part, str):
            kind, data = b"s", part.encode()
        else:
            kind, data = b"i", part.to_bytes(part.bit_length() // 8 + 1, "little", signed=True)
        hashed.update(kind + len(data).to_bytes(4, "little") + data)
    return int.from_bytes(hashed.digest(), "little")
