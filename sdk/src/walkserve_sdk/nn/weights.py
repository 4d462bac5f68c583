"""Reading safetensors into a module, strictly: what is missing, unexpected or misshaped is listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from walkserve_sdk.errors import LoadError

_SHOWN = 12


def read_safetensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of ``model.safetensors``, or of the shards its index lists; memory-mapped until used.

    Raises:
        LoadError: A file that is missing or unreadable, or a tensor the index has and no shard.
    """
    index = folder / "model.safetensors.index.json"
    whole = folder / "model.safetensors"
    if index.is_file():
        try:
            placed: dict[str, str] = json.loads(index.read_text())["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise LoadError(f"{index} is no index of shards: {error!r}") from error
        files = sorted(set(placed.values()))
    elif whole.is_file():
        placed, files = {}, [whole.name]
    else:
        raise LoadError(f"{folder} holds neither model.safetensors nor model.safetensors.index.json")
    tensors: dict[str, Tensor] = {}
    for name in files:
        tensors |= _read_file(folder / name)
    absent = sorted(set(placed) - set(tensors))
    if absent:
        raise LoadError(f"{index} lists tensors that no shard holds: {_some(absent)}")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise LoadError(f"{path} is missing; download the whole checkpoint again")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise LoadError(f"{path} cannot be read: {error}; download it again") from error


def load_strictly(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    device: torch.device,
    dtype: torch.dtype,
    place: str,
    optional: Iterable[str] = (),
    ignored: Callable[[str], bool] = lambda name: False,
) -> None:
    """Fill ``module``, built on the meta device, with exactly these tensors.

    Args:
        tensors: By the names of the module's state dict.
        place: The checkpoint, for messages.
        optional: Names that may be absent (tied weights).
        ignored: Names that may be there and are not wanted (stored buffers).

    Raises:
        LoadError: Names and shapes that do not fit, all of them.
    """
    wanted = module.state_dict()
    may_miss = set(optional)
    missing = [name for name in wanted if name not in tensors and name not in may_miss]
    unexpected = [name for name in tensors if name not in wanted and not ignored(name)]
    misshaped = [
        f"{name} (here {tuple(tensors[name].shape)}, the model has {tuple(value.shape)})"
        for name, value in wanted.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    faults = (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
    if any(names for _, names in faults):
        said = "; ".join(f"{what}: {_some(names)}" for what, names in faults if names)
        raise LoadError(f"{place} does not fit this model: {said}")
    fitting = {
        name: tensors[name].to(device=device, dtype=dtype if tensors[name].is_floating_point() else None)
        for name in wanted
        if name in tensors
    }
    module.load_state_dict(fitting, strict=False, assign=True)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
