"""How a SNAC checkpoint is read, strictly, down to the half that speaks."""

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from snac import SNAC
from torch import Tensor
from torch.nn.utils import parametrize

_NAMES_SHOWN = 12
# What SNAC's constructor, which checks nothing, runs into.
_IMPOSSIBLE_FIGURES = (
    TypeError,
    ValueError,
    RuntimeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    NameError,
)


class BadCodec(ValueError):
    """A SNAC checkpoint that cannot be served: the message says what is wrong with which tensor or file."""


def load_snac(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> SNAC:
    """Read ``config.json`` and ``pytorch_model.bin`` from ``folder``, ready to decode.

    The whole checkpoint is checked, but only the quantizer and the decoder are kept: of the 19.8 M weights
    of the 24 kHz model, 13.2 M. Weight norm is folded into plain weights, in float32 whatever the file holds.

    Raises:
        BadCodec: If a file is missing or unreadable, if a tensor is missing, unexpected or of another
            shape than the configuration asks for, or if the codec has local attention.
    """
    config = _read_config(_existing(folder, "config.json"))
    stored = _read_tensors(_existing(folder, "pytorch_model.bin"))
    try:
        with torch.device("meta"):  # no memory, no random start values: every tensor comes from the file
            snac = SNAC(**config)
    except _IMPOSSIBLE_FIGURES as error:
        raise BadCodec(f"{folder / 'config.json'} does not describe a SNAC codec: {error}") from error
    if snac.attn_window_size is not None:
        raise BadCodec(
            f"{folder / 'config.json'}: attn_window_size is {snac.attn_window_size}, and local attention "
            "cannot be decoded as a stream; use a codec where it is null, as in snac_24khz"
        )
    _check(snac.state_dict(), stored, folder / "pytorch_model.bin")
    # Clones, so that nothing points into the mapped file once this returns.
    del snac.encoder
    wanted = {name: stored[name].float().clone() for name in snac.state_dict()}
    snac.load_state_dict(wanted, assign=True)
    for module in list(snac.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight")
    return snac.requires_grad_(False).eval().to(device=device, dtype=dtype)


def _existing(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise BadCodec(
            f"{path} is missing; the codec's folder needs config.json and pytorch_model.bin, "
            "as published for hubertsiuzdak/snac_24khz"
        )
    return path


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadCodec(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise BadCodec(f"{path} holds a {type(config).__name__}; a SNAC configuration is an object")
    return config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        # Mapped, the encoder is never read; only the zip layout of torch.save can be mapped.
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise BadCodec(f"{path} cannot be read as a PyTorch state dict: {error}") from error
    if not isinstance(stored, Mapping) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise BadCodec(f"{path} is no state dict: a mapping from names to tensors is needed")
    return dict(stored)


def _check(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor], path: Path) -> None:
    faults = {
        "missing": sorted(expected.keys() - stored.keys()),
        "unexpected": sorted(stored.keys() - expected.keys()),
        "of the wrong shape": [
            f"{name} {_shape(stored[name])} instead of {_shape(wanted)}"
            for name, wanted in expected.items()
            if name in stored and stored[name].shape != wanted.shape
        ],
        "not of a floating type": [
            f"{name} {tensor.dtype}" for name, tensor in stored.items() if not tensor.is_floating_point()
        ],
    }
    said = [f"{len(names)} {fault}: {_listed(names)}" for fault, names in faults.items() if names]
    if said:
        raise BadCodec(f"{path} does not fit its config.json; tensors " + "; ".join(said))


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
