"""The files of ``walkserve generate``: what goes in, which outputs the one that comes out holds, and it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from walkserve.media import pictures
from walkserve.media.formats import FORMATS, SoundFormat, format_of_suffix
from walkserve_sdk import Model, Part
from walkserve_sdk.errors import did_you_mean
from walkserve_sdk.ports import Audio, Image, Kind, Record, Tensor, Text, Video

ARRAYS: tuple[type[Kind], ...] = (Tensor, Image, Video)
SUFFIXES = (
    *(suffix for format in FORMATS.values() for suffix in format.suffixes),
    *(suffix for format in pictures.FORMATS.values() for suffix in format.suffixes),
    ".txt",
    ".npy",
    ".json",
    ".safetensors",
)


class InputFile(click.ParamType[tuple[str, Path]]):
    """``[NAME=]FILE``."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        name, has_name, path = value.partition("=")
        if not has_name or Path(value).exists():
            name, path = "", value
        if not Path(path).is_file():
            self.fail(f"there is no file {path}", param, ctx)
        return name, Path(path)


def read_files(kind: str, files: Sequence[tuple[str, Path]]) -> tuple[Part, ...]:
    """The parts that these files are."""
    try:
        return tuple(Part(kind, path.read_bytes(), name) for name, path in files)
    except OSError as error:
        raise click.FileError(str(error.filename), error.strerror) from error


def check_out(out: Path) -> None:
    """Whether it can be written at all. Asked before a minute of work, not after it."""
    if out.suffix.lower() not in SUFFIXES:
        raise click.BadParameter(
            f"no format ends in {out.suffix!r}; there is {', '.join(SUFFIXES)}", param_hint="--out"
        )
    folder = out.parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder}", param_hint="--out")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise click.BadParameter(f"{out} may not be written", param_hint="--out")


def chosen_outputs(
    family: str, model: type[Model], out: Path | None, asked: Sequence[str]
) -> tuple[str, ...]:
    """The outputs that the file holds: of a ``.safetensors`` all, else the one of its kind. Without a file it
    is a text, to be printed.

    Raises:
        UsageError: The model has none, or several.
    """
    outputs = model.spec.outputs
    for name in asked:
        if name not in outputs:
            raise click.BadParameter(
                f"{family} has no output {name!r}{did_you_mean(name, outputs)}", param_hint="--output"
            )
    if out is not None and out.suffix.lower() == ".safetensors":
        return tuple(asked or outputs)
    kinds = _kinds(out.suffix.lower()) if out is not None else (Text,)
    # what a picture looks like before it is done has to be asked for
    offered = asked or [name for name, output in outputs.items() if output is not model.previews]
    fit = [name for name in offered if isinstance(outputs[name].kind, kinds)]
    if len(fit) != 1 or len(asked) > 1:
        from walkserve.errors import SettingError

        made = ", ".join(f"{name} ({output.kind.kind})" for name, output in outputs.items()) or "nothing"
        what = " or ".join(kind.__name__.lower() for kind in kinds)
        cure = "; name it with --output" if len(fit) > 1 and not asked else ""
        if out is None:
            raise SettingError(f"{family} gives {made}; only a text is printed; give it --out{cure}")
        raise SettingError(f"{family} gives {made}; {out.name} holds one {what} output{cure}")
    return tuple(fit)


def _kinds(suffix: str) -> tuple[type[Kind], ...]:
    """Of output that a file with this suffix holds one of."""
    if pictures.format_of_suffix(suffix) is not None:
        return (Image,)
    return {".txt": (Text,), ".npy": ARRAYS, ".json": (Record,)}.get(suffix, (Audio,))


def write_out(out: Path, outputs: dict[str, Any]) -> str:
    """Write them; returns what the file has, in words."""
    from walkserve_sdk.arrays import write_npy, write_safetensors
    from walkserve_sdk.results import flat

    (whole, *_) = outputs.values()
    suffix, format = out.suffix.lower(), format_of_suffix(out.suffix)
    try:
        if format is not None:
            out.write_bytes(_sound(format, whole.samples, whole.rate))
            return f"{len(whole.samples) / whole.rate:.2f} s of audio"
        picture = pictures.format_of_suffix(suffix)
        if picture is not None:
            return _write_picture(out, picture, whole)
        if suffix == ".txt":
            out.write_text(whole, "utf-8")
            return f"{len(whole)} characters"
        if suffix == ".json":
            out.write_text(json.dumps(_plain(whole), indent=2) + "\n")
            return "a record" if isinstance(whole, dict) else f"{len(whole or ())} records"
        arrays, texts = flat(outputs)
        if suffix == ".safetensors":
            out.write_bytes(write_safetensors(arrays, texts))
            return f"{len(arrays)} tensor{'' if len(arrays) == 1 else 's'}"
        if len(arrays) != 1:
            raise ValueError(f"it holds one array, and {len(arrays)} came; write a .safetensors file")
        ((_, array),) = arrays.items()
        out.write_bytes(write_npy(array))
        return f"{array.dtype} of shape {array.shape}"
    except (OSError, ValueError) as error:  # more channels than the format has
        raise click.FileError(str(out), f"it cannot be written: {error}") from error


def _write_picture(out: Path, format: pictures.PictureFormat, whole: Any) -> str:
    pixels = whole[0] if isinstance(whole, list) and len(whole) == 1 else whole
    if pixels is None or isinstance(pixels, list):
        raise ValueError(f"it holds one picture, and {len(pixels or ())} came; write a .safetensors file")
    out.write_bytes(pictures.encode_picture(pixels, format))
    height, width, _ = pixels.shape
    return f"a picture of {width}x{height}"


def _sound(format: SoundFormat, samples: Any, rate: int) -> bytes:
    from walkserve.media.encoders import open_encoder

    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with open_encoder(format, rate, channels, streamed=False) as encoder:
        return bytes(encoder.feed(samples) + encoder.finish())


def _plain(value: Any) -> Any:
    """A record as JSON: arrays with their dtype and shape, numbers that JSON has not as null."""
    from math import isfinite

    from walkserve_sdk.arrays import to_json

    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case float() if not isfinite(value):
            return None
        case None | bool() | int() | float() | str():
            return value
        case _:
            return to_json(value)
