"""What a checkpoint's small files say: sizes of its parts, limits of its images. No torch here.

The published files leave out what the authors' application sets itself; where a file says nothing, that holds
here as well.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import isqrt
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from walkserve_sdk import Checkpoint, LoadError

Count = Annotated[int, Meta(ge=1)]


class Language(msgspec.Struct, frozen=True):
    """``llm_config.json``: a Qwen2, except that both its experts normalise queries and keys."""

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    max_position_embeddings: Count = 32_768
    hidden_act: str = "silu"

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class Vision(msgspec.Struct, frozen=True):
    """``vit_config.json``: a SigLIP, of whose layers the last is neither stored nor used."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Annotated[int, Meta(ge=2)]
    num_attention_heads: Count
    patch_size: Count
    image_size: Count
    num_channels: Count = 3
    hidden_act: str = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6


class Autoencoder(msgspec.Struct, frozen=True):
    """``vae_config``; what it leaves out is FLUX.1's."""

    ch: Count = 128
    ch_mult: tuple[Count, ...] = (1, 2, 4, 4)
    num_res_blocks: Count = 2
    z_channels: Count = 16
    downsample: Count = 8
    scale_factor: float = 0.3611
    shift_factor: float = 0.1159


class Glue(msgspec.Struct, frozen=True):
    """``config.json``, the part that is about what joins the others."""

    vae_config: Autoencoder = Autoencoder()
    latent_patch_size: Count = 2
    connector_act: str = "gelu_pytorch_tanh"


class Limits(msgspec.Struct, frozen=True):
    """How large an image is made before a part of the model sees it, in pixels a side."""

    max_size: Count
    min_size: Count
    stride: Count


class Preprocessing(msgspec.Struct, frozen=True):
    """``preprocessor_config.json``; there is none beside the published checkpoint."""

    vae_transform: Limits = Limits(1024, 512, 16)
    vit_transform: Limits = Limits(980, 224, 14)


class Settings(msgspec.Struct, frozen=True):
    """All of it.

    Args:
        latent_side: Latent tokens in a row of the table of latent positions, and rows in it.
        vit_side: Likewise patches.
    """

    language: Language
    vision: Vision
    glue: Glue
    images: Preprocessing
    latent_side: int
    vit_side: int

    @property
    def latent_stride(self) -> int:
        """Pixels to a latent token, each way."""
        return self.glue.latent_patch_size * self.glue.vae_config.downsample

    @property
    def largest_side(self) -> int:
        """Pixels: what is larger has tokens without a position of their own."""
        return self.latent_side * self.latent_stride

    @property
    def latent_channels(self) -> int:
        """Numbers in a latent token."""
        return self.glue.vae_config.z_channels * self.glue.latent_patch_size**2

    @property
    def patch_channels(self) -> int:
        """Numbers in a patch."""
        return self.vision.num_channels * self.vision.patch_size**2


def read_settings(checkpoint: Checkpoint) -> Settings:
    """Read and compare them.

    The tables of positions are stored, so how large an image can be is what their sizes say, whatever else is
    written somewhere.

    Raises:
        LoadError: A file is missing or unreadable, or two of them contradict each other.
    """
    glue = _read(checkpoint.file("config.json"), Glue)
    tables = stored_shapes(checkpoint.file("ema.safetensors"))
    settings = Settings(
        language=_read(checkpoint.file("llm_config.json"), Language),
        vision=_read(checkpoint.file("vit_config.json"), Vision),
        glue=glue,
        images=read_preprocessing(checkpoint),
        latent_side=_side(checkpoint, tables, "latent_pos_embed.pos_embed"),
        vit_side=_side(checkpoint, tables, "vit_pos_embed.pos_embed"),
    )
    _compare(checkpoint, settings)
    return settings


def read_preprocessing(checkpoint: Checkpoint) -> Preprocessing:
    """The limits that stand beside the checkpoint, or the published ones."""
    path = checkpoint.folder() / "preprocessor_config.json"
    return _read(path, Preprocessing) if path.is_file() else Preprocessing()


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a safetensors file, from its header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header: dict[str, Any] = json.loads(file.read(length))
        return {name: tuple(said["shape"]) for name, said in header.items() if name != "__metadata__"}
    except (struct.error, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise LoadError(f"{path} cannot be read: {error!r}; download it again") from error


Said = TypeVar("Said", bound=msgspec.Struct)


def _read(path: Path, kind: type[Said]) -> Said:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise LoadError(f"{path} is not what BAGEL needs: {error}") from error


def _side(checkpoint: Checkpoint, tables: dict[str, tuple[int, ...]], name: str) -> int:
    shape = tables.get(name, ())
    side = isqrt(shape[0]) if shape else 0
    if len(shape) != 2 or side * side != shape[0]:
        there = f"is {shape}" if shape else "is missing"
        raise LoadError(
            f"{checkpoint.folder() / 'ema.safetensors'}: {name} {there}; it has to be a square of positions"
        )
    return side


def _compare(checkpoint: Checkpoint, settings: Settings) -> None:
    wrong = list(_contradictions(settings))
    if wrong:
        raise LoadError(f"{checkpoint.folder()}: its files contradict each other: {'; '.join(wrong)}")


def _contradictions(settings: Settings) -> Iterator[str]:
    language, vision, vae = settings.language, settings.vision, settings.glue.vae_config
    for_vae, for_vit = settings.images.vae_transform, settings.images.vit_transform
    heads, shared = language.num_attention_heads, language.num_key_value_heads
    if language.hidden_size % (2 * heads):
        yield f"hidden_size {language.hidden_size} gives {heads} attention heads no even size"
    if heads % shared:
        yield f"{heads} attention heads cannot share {shared} heads of keys"
    for name, said, known in (
        ("hidden_act", language.hidden_act, "silu"),
        ("connector_act", settings.glue.connector_act, "gelu_pytorch_tanh"),
    ):
        if said != known:
            yield f"{name} is {said!r}, and only {known!r} is known"
    if vae.downsample != (down := 2 ** (len(vae.ch_mult) - 1)):
        yield f"a VAE of {len(vae.ch_mult)} levels makes images {down} times smaller, not {vae.downsample}"
    if for_vae.stride % settings.latent_stride:
        own = settings.latent_stride
        yield f"images for the VAE come in {for_vae.stride} pixels, but a latent token is {own}"
    if for_vit.stride % vision.patch_size:
        yield f"images for the ViT come in {for_vit.stride} pixels, but a patch is {vision.patch_size}"
    for part, limits, most in (
        ("VAE", for_vae, settings.largest_side),
        ("ViT", for_vit, settings.vit_side * vision.patch_size),
    ):
        if limits.max_size > most:
            asked = limits.max_size
            yield f"images for the {part} may have {asked} pixels a side, but there are positions for {most}"
    if (own := (vision.image_size // vision.patch_size) ** 2) != settings.vit_side**2:
        yield f"the ViT has {own} positions of its own, but {settings.vit_side**2} where it is joined"
