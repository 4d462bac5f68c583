"""``walkserve generate``: one request to one model, without a server."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from walkserve.cli.options import model_options
from walkserve.media.formats import FORMATS, SoundFormat, format_of_suffix

SUFFIXES = tuple(suffix for format in FORMATS.values() for suffix in format.suffixes)


class _OptionValue(click.ParamType[tuple[str, Any]]):
    """``name=value``; the value is JSON where it is JSON, else text."""

    name = "option"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        name, has_value, text = value.partition("=")
        if not name or not has_value:
            self.fail(f"{value!r} is not NAME=VALUE, as in voice=tara", param, ctx)
        return name, read_value(text)


def read_value(text: str) -> Any:
    """A number, true, false, a list: what JSON makes of it; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command("generate")
@click.argument("name", metavar="NAME[:VARIANT][=CHECKPOINT]")
@click.option("--text", required=True, help="What to say; - reads it from stdin.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Where the sound goes; ends in {', '.join(SUFFIXES)}.",
)
@click.option(
    "--option",
    "options",
    type=_OptionValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="One of the model's own options, as in voice=tara or temperature=0.4; may be given several times.",
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="For the same sound again.")
@model_options
def command(
    name: str,
    text: str,
    out: Path,
    options: Sequence[tuple[str, Any]],
    seed: int | None,
    log_level: str,
    **choices: Any,
) -> None:
    """Speak a text into a file, without a server."""
    format = _check_out(out)
    asked = _collect(options, seed)
    output = _audio_output(name, choices["plugins"])
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise click.BadParameter("it is empty; there is nothing to say", param_hint="--text")
    _check_request(name, choices, text, output, asked)

    from rich.console import Console

    progress = Console(stderr=True)
    with progress.status(f"loading {name}"):
        from walkserve import Engine

        engine = Engine(name, **choices | {"offline": True})  # all of it is on this machine by now
    with engine, progress.status("generating"):
        began = time.perf_counter()
        result = engine.generate(text=text, outputs=(output,), **asked)
        took_s = time.perf_counter() - began
    audio = getattr(result, output)
    _write(out, format, audio.samples, audio.rate)
    audio_s = len(audio.samples) / audio.rate
    factor = f"real-time factor {took_s / audio_s:.2f}" if audio_s else "no real-time factor"
    click.echo(f"{out}: {audio_s:.2f} s of audio in {took_s:.2f} s, {factor}")
    read, wrote = (result.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
    click.echo(f"finish reason: {result.finish_reason}, seed: {result.seed}, tokens: {read} in, {wrote} out")


def _check_out(out: Path) -> SoundFormat:
    """The format to write. Asked before a minute of work, not after it."""
    format = format_of_suffix(out.suffix)
    if format is None:
        raise click.BadParameter(
            f"no format ends in {out.suffix!r}; there is {', '.join(SUFFIXES)}", param_hint="--out"
        )
    folder = out.parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder}", param_hint="--out")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise click.BadParameter(f"{out} may not be written", param_hint="--out")
    return format


def _collect(options: Sequence[tuple[str, Any]], seed: int | None) -> dict[str, Any]:
    pairs = [*options, *([("seed", seed)] if seed is not None else [])]
    asked = dict(pairs)
    for key in asked:
        if sum(name == key for name, _ in pairs) > 1:
            raise click.BadParameter(f"{key} is given twice", param_hint="--option")
        if key in ("text", "outputs"):
            raise click.BadParameter(f"{key} is no option of a model", param_hint="--option")
    return asked


def _audio_output(name: str, plugins: Sequence[str]) -> str:
    """The output to write. Families with none, or with several, wait for a later version."""
    from walkserve.errors import SettingError
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import load_model
    from walkserve_sdk.ports import Audio

    family = parse_model_name(name).family
    outputs = load_model(family, plugins).spec.outputs
    audio = [output for output, port in outputs.items() if isinstance(port.kind, Audio)]
    if len(audio) != 1:
        raise SettingError(
            f"{family} gives {', '.join(outputs) or 'nothing'}; `generate` needs one audio output"
        )
    return audio[0]


def _check_request(
    name: str, choices: Mapping[str, Any], text: str, output: str, asked: Mapping[str, Any]
) -> None:
    """Fetch the checkpoint's files and ask the model's own gate; neither reads weights nor imports torch."""
    from walkserve.plugins import load_model
    from walkserve.resolve import resolve_model
    from walkserve_sdk import Part

    config = resolve_model(name, **choices)
    model = load_model(config.family, config.plugins)(config.checkpoint)
    model.request(outputs=(output,), parts=(Part("text", text),), options=asked)


def _write(out: Path, format: SoundFormat, samples: Any, rate: int) -> None:
    from walkserve.media.encoders import open_encoder

    channels = 1 if samples.ndim == 1 else samples.shape[1]
    try:
        with open_encoder(format, rate, channels, streamed=False) as encoder:
            encoder.feed(samples)
            out.write_bytes(encoder.finish())
    except (OSError, ValueError) as error:  # more channels than the format has
        raise click.FileError(str(out), f"it cannot be written: {error}") from error
