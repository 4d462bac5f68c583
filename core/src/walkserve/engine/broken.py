"""Which errors mean that a device is broken, so that no batch after this one could be computed either."""

from __future__ import annotations

_SPARED = (
    "out of memory",
    "ALLOC_FAILED",
    "NOT_SUPPORTED",
    "INVALID_VALUE",
    "invalid argument",
    "invalid config",
)
"""Of what CUDA and its libraries say: the call was refused, and the device goes on."""


class DeviceBroke(BaseException):
    """A device is broken, and with it the process that uses it; the cause is what torch raised.

    Not an ``Exception``: whoever takes an error for a request's own must not take this one.
    """


def raise_if_broken(error: BaseException) -> None:
    """Never try again what broke a device: its context answers every later call with the same error.

    It may come up far from the batch that caused it, wherever a result is first looked at.

    Raises:
        DeviceBroke: ``error`` says so.
    """
    if isinstance(error, DeviceBroke):
        raise error
    if is_of_a_broken_device(error):
        raise DeviceBroke(str(error).partition("\n")[0]) from error


def is_of_a_broken_device(error: BaseException) -> bool:
    """By its kind's name, so that no torch is needed, and its words: some libraries raise a RuntimeError."""
    if not isinstance(error, RuntimeError):
        return False
    said = str(error)
    of_a_device = any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__)
    return (of_a_device or "CUDA error" in said) and not any(words in said for words in _SPARED)
