"""How large a checkpoint is, by its ``config.json``; a request meets this too, so there is no torch here.

Three spellings of one thing are in use: transformers' ``VJEPA2Config``, the authors' training arguments in
one level, and the same by part. They are read into one ``Shape``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from walkserve_sdk import LoadError

PUBLISHED = "https://dl.fbaipublicfiles.com/vjepa2"
PUBLISHED_WORLD_MODEL = f"{PUBLISHED}/vjepa2-ac-vitg.pt"

Count = Annotated[int, Meta(ge=1)]

_TRANSFORMERS = {
    "crop_size": "img_size",
    "frames_per_clip": "num_frames",
    "hidden_size": "embed_dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "pred_hidden_size": "pred_embed_dim",
    "pred_num_hidden_layers": "pred_depth",
    "pred_num_attention_heads": "pred_num_heads",
}
_BY_PART = {
    "encoder": {name: name for name in ("embed_dim", "depth", "num_heads", "mlp_ratio")},
    "predictor": {
        "predictor_embed_dim": "pred_embed_dim",
        "depth": "pred_depth",
        "num_heads": "pred_num_heads",
        "mlp_ratio": "pred_mlp_ratio",
    },
}
_HEADS = {1024: 16, 1280: 16, 1408: 22}
_PREDICTOR_HEADS = {384: 12, 1024: 16}
"""Of the published widths; what else there is has to say so itself, for no tensor tells it."""


class _Config(msgspec.Struct):
    """The authors' names, in one level. What is not told is as published, or read from the tensors."""

    img_size: Count = 256
    patch_size: Count = 16
    num_frames: Count = 64
    tubelet_size: Count = 2
    embed_dim: Count | None = None
    depth: Count | None = None
    num_heads: Count | None = None
    mlp_ratio: Annotated[float, Meta(gt=0)] = 4.0
    pred_embed_dim: Count | None = None
    pred_depth: Count | None = None
    pred_num_heads: Count | None = None
    pred_mlp_ratio: Annotated[float, Meta(gt=0)] = 4.0
    layer_norm_eps: Annotated[float, Meta(gt=0)] = 1e-6
    is_frame_causal: bool = True
    use_rope: bool = True
    use_extrinsics: bool = False


@dataclass(frozen=True)
class Stack:
    """The blocks of a transformer. ``hidden`` is the width inside its MLPs."""

    width: int
    depth: int
    heads: int
    hidden: int


@dataclass(frozen=True)
class Shape:
    """One checkpoint's figures.

    Args:
        image: Side of a picture, in pixels.
        frames: The longest clip it was trained with; a world model's cache holds ``frames // tubelet`` steps.
        encoder: None where the tensors have to tell.
        predictor: Likewise.
    """

    image: int = 256
    patch: int = 16
    tubelet: int = 2
    frames: int = 64
    encoder: Stack | None = None
    predictor: Stack | None = None
    eps: float = 1e-6
    place: str = field(default="", compare=False)

    @property
    def grid(self) -> int:
        """Patches along one side."""
        return self.image // self.patch

    @property
    def patches(self) -> int:
        """Latents of one frame, or of one tubelet."""
        return self.grid**2

    @property
    def steps(self) -> int:
        """The most frames that a world model's predictor sees: those observed and those imagined."""
        return self.frames // self.tubelet

    @property
    def step_tokens(self) -> int:
        """Tokens of the predictor for one frame: the action, the pose, and the patches."""
        return self.patches + 2


def read_shape(folder: Path) -> Shape:
    """What ``config.json`` says; where there is none, what is published.

    Without one, a file whose name has 384 in it is of 384 pixels, as ``vitg-384.pt`` is.

    Raises:
        LoadError: The file is unreadable, or says something that cannot be served.
    """
    path = folder / "config.json"
    if not path.is_file():
        is_large = any("384" in each.name for each in folder.glob("*.pt"))
        return Shape(image=384 if is_large else 256, place=str(path))
    try:
        said = json.loads(path.read_text("utf-8"))
        if not isinstance(said, dict):
            raise LoadError(f"{path} holds a {type(said).__name__}; a configuration is an object")
        config = msgspec.convert(_in_one_spelling(said), _Config)
    except (ValueError, msgspec.ValidationError) as error:
        raise LoadError(f"{path} cannot be read: {error}") from error
    _check(config, path)
    return Shape(
        image=config.img_size,
        patch=config.patch_size,
        tubelet=config.tubelet_size,
        frames=config.num_frames,
        encoder=_stack(config.embed_dim, config.depth, config.num_heads, config.mlp_ratio, _HEADS),
        predictor=_stack(
            config.pred_embed_dim,
            config.pred_depth,
            config.pred_num_heads,
            config.pred_mlp_ratio,
            _PREDICTOR_HEADS,
        ),
        eps=config.layer_norm_eps,
        place=str(path),
    )


def _in_one_spelling(said: Mapping[str, Any]) -> dict[str, Any]:
    flat = {_TRANSFORMERS.get(name, name): value for name, value in said.items()}
    for part, names in _BY_PART.items():
        inner = flat.pop(part, None)
        if isinstance(inner, dict):
            flat |= {names.get(name, name): value for name, value in inner.items()}
    return flat


def _check(config: _Config, path: Path) -> None:
    if config.img_size % config.patch_size:
        raise LoadError(f"{path}: {config.img_size} pixels are no whole patches of {config.patch_size}")
    if config.num_frames < config.tubelet_size:
        raise LoadError(f"{path}: {config.num_frames} frames are less than a tubelet's {config.tubelet_size}")
    if not config.use_rope:
        raise LoadError(f"{path}: use_rope is false; only checkpoints with rotary positions can be served")
    if not config.is_frame_causal:
        raise LoadError(
            f"{path}: is_frame_causal is false; frames that see later ones cannot be rolled out from a cache"
        )
    if config.use_extrinsics:
        raise LoadError(
            f"{path}: use_extrinsics is true, but a camera's extrinsics are no input of this family; "
            "take a checkpoint without, as the published one is"
        )


def _stack(
    width: int | None, depth: int | None, heads: int | None, ratio: float, published: Mapping[int, int]
) -> Stack | None:
    heads = heads if heads is not None or width is None else published.get(width)
    if width is None or depth is None or heads is None:
        return None
    return Stack(width, depth, heads, int(width * ratio))


def heads_of(width: int, *, is_predictor: bool, place: str) -> int:
    """How many heads a published model of this width has.

    Raises:
        LoadError: None is published.
    """
    known = _PREDICTOR_HEADS if is_predictor else _HEADS
    if width not in known:
        part = "predictor" if is_predictor else "encoder"
        raise LoadError(
            f"{place} does not say how many heads the {part} has, and no published one is {width} wide "
            f"(there is {', '.join(map(str, known))}); put a config.json beside the .pt file, with "
            "num_heads and pred_num_heads"
        )
    return known[width]
