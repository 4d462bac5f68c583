"""Which tensors a folder holds, whoever published them: transformers' layout, or the authors' ``.pt``.

    transformers                              the authors
    config.json                               config.json, or nothing
    model.safetensors                         NAME.pt: {encoder, predictor, target_encoder, opt, epoch, ...}
      encoder.layer.0.attention.query.weight    module.backbone.blocks.0.attn.qkv.weight
      predictor.layer.0.…                       module.predictor_blocks.0.…

An action-conditioned model has only the second. Files are mapped: of the published 11.7 GB, optimiser
included, what is read is what is served.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from walk_plugin_vjepa2.shapes import PUBLISHED, PUBLISHED_WORLD_MODEL, Shape, Stack, heads_of, read_shape
from walkserve_sdk import Checkpoint, LoadError
from walkserve_sdk.nn import read_safetensors

_WRAPPERS = ("module.", "backbone.")
_ENCODERS = ("encoder", "target_encoder")
"""In the order in which they are looked for: the authors' hub code takes the first."""


@dataclass(frozen=True)
class Stored:
    """What was found.

    Args:
        encoder: By names without the prefixes of who wrapped it.
        predictor: Likewise; empty where there is none.
        published: Whether the names are the authors', or else transformers'.
        place: The file, for messages.
    """

    shape: Shape
    encoder: Mapping[str, Tensor]
    predictor: Mapping[str, Tensor]
    published: bool
    place: str

    @property
    def is_conditioned(self) -> bool:
        """Whether the predictor takes actions."""
        return any(name.startswith("action_encoder.") for name in self.predictor)


def read_video_model(checkpoint: Checkpoint) -> Stored:
    """An encoder and a masked predictor, in either layout.

    Raises:
        LoadError: Neither is there, or the predictor takes actions.
    """
    folder = checkpoint.folder()
    if _is_transformers(folder):
        return _read_transformers(folder)
    stored = _read_published(folder)
    if stored.is_conditioned:
        raise LoadError(
            f"{stored.place} is conditioned on actions: it is a V-JEPA 2-AC; serve it as vjepa2-ac={folder}"
        )
    return stored


def read_world_model(checkpoint: Checkpoint) -> Stored:
    """An encoder and a predictor that takes actions, in the authors' layout.

    Raises:
        LoadError: There is no such file, or its predictor takes no actions.
    """
    folder = checkpoint.folder()
    if _is_transformers(folder) and not any(folder.glob("*.pt")):
        raise LoadError(
            f"{folder} is a V-JEPA 2 without actions, in transformers' layout; serve it as vjepa2={folder}, "
            f"or give a folder with the authors' {PUBLISHED_WORLD_MODEL}"
        )
    stored = _read_published(folder)
    if not stored.is_conditioned:
        raise LoadError(
            f"{stored.place} takes no actions: its predictor has no action_encoder; serve it as "
            f"vjepa2={folder}, or give a folder with {PUBLISHED_WORLD_MODEL}"
        )
    return stored


def _is_transformers(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def _read_transformers(folder: Path) -> Stored:
    tensors = read_safetensors(folder)
    shape = read_shape(folder)
    if shape.encoder is None or shape.predictor is None:
        raise LoadError(f"{shape.place} does not describe a VJEPA2Model; take the one published beside it")
    parts = {part: _below(tensors, f"{part}.") for part in ("encoder", "predictor")}
    other = [name for name in tensors if not name.startswith(("encoder.", "predictor."))]
    if other:
        raise LoadError(
            f"{folder} holds more than an encoder and a predictor ({', '.join(other[:4])}, …): a fine-tuned "
            "classifier is not served; take the model that it was made from"
        )
    return Stored(shape, parts["encoder"], parts["predictor"], published=False, place=str(folder))


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _read_published(folder: Path) -> Stored:
    path = _only_file(folder)
    said = _read_file(path)
    encoder = next((said[name] for name in _ENCODERS if name in said), None)
    if encoder is None:
        raise LoadError(f"{path} has no {' and no '.join(_ENCODERS)}; it has {', '.join(map(str, said))}")
    parts = {"encoder": _unwrapped(encoder, path), "predictor": _unwrapped(said.get("predictor", {}), path)}
    shape = _completed(read_shape(folder), parts["encoder"], parts["predictor"], path)
    return Stored(shape, parts["encoder"], parts["predictor"], published=True, place=str(path))


def _only_file(folder: Path) -> Path:
    found = sorted(folder.glob("*.pt"))
    if not found:
        there = ", ".join(sorted(each.name for each in folder.iterdir())) or "nothing"
        raise LoadError(
            f"{folder} holds neither transformers' model.safetensors nor a .pt file of the authors' "
            f"({PUBLISHED}/NAME.pt); it holds {there}"
        )
    if len(found) > 1:
        raise LoadError(
            f"{folder} holds {len(found)} .pt files, {', '.join(each.name for each in found)}; "
            "which one is meant cannot be known: leave one in the folder"
        )
    return found[0]


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        # Only the zip layout of torch.save can be mapped; mapped, the optimiser's moments are never read.
        said = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise LoadError(f"{path} cannot be read as a PyTorch checkpoint: {error}") from error
    if not isinstance(said, Mapping):
        raise LoadError(
            f"{path} holds a {type(said).__name__}; a mapping with encoder and predictor is needed"
        )
    return said


def _unwrapped(part: object, path: Path) -> dict[str, Tensor]:
    """A state dict without the prefixes of what the model was wrapped in while it was trained."""
    if not isinstance(part, Mapping) or not all(isinstance(value, Tensor) for value in part.values()):
        raise LoadError(f"{path}: its encoder and predictor must be mappings from names to tensors")
    tensors = {}
    for name, tensor in part.items():
        for wrapper in _WRAPPERS:
            name = name.replace(wrapper, "")
        tensors[name] = tensor
    return tensors


def _completed(
    shape: Shape, encoder: Mapping[str, Tensor], predictor: Mapping[str, Tensor], path: Path
) -> Shape:
    """With what the tensors tell, where the configuration does not."""
    if not Path(shape.place).is_file():
        kernel = encoder.get("patch_embed.proj.weight")
        if kernel is None or kernel.dim() != 5:
            raise LoadError(f"{path}: its encoder has no patch_embed.proj.weight of a video model")
        shape = replace(shape, tubelet=kernel.shape[2], patch=kernel.shape[3])
    if shape.encoder is None:
        entry = encoder.get("patch_embed.proj.weight")
        shape = replace(shape, encoder=_stack(entry, encoder, "blocks", shape, path, is_predictor=False))
    if shape.predictor is None and predictor:
        entry = predictor.get("predictor_embed.weight")
        shape = replace(
            shape, predictor=_stack(entry, predictor, "predictor_blocks", shape, path, is_predictor=True)
        )
    return shape


def _stack(
    entry: Tensor | None,
    tensors: Mapping[str, Tensor],
    blocks: str,
    shape: Shape,
    path: Path,
    *,
    is_predictor: bool,
) -> Stack:
    hidden = tensors.get(f"{blocks}.0.mlp.fc1.weight")
    if entry is None or hidden is None:
        raise LoadError(f"{path}: its names are not those of V-JEPA 2: {blocks}.0.mlp.fc1.weight is missing")
    depth = len({name.split(".")[1] for name in tensors if name.startswith(f"{blocks}.")})
    width = entry.shape[0]
    place = shape.place if Path(shape.place).is_file() else str(path)
    heads = heads_of(width, is_predictor=is_predictor, place=place)
    return Stack(width, depth, heads, hidden.shape[0])
