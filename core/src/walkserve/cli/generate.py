"""``walkserve generate``: one request to one model, without a server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from walkserve.cli.generate_files import SUFFIXES, InputFile, check_out, chosen_outputs, read_files, write_out
from walkserve.cli.options import model_options
from walkserve_sdk import Part
from walkserve_sdk.requests import KINDS


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


_FILES: Any = {"multiple": True, "type": InputFile(), "metavar": "[NAME=]FILE"}


@click.command("generate")
@click.argument("name", metavar="NAME[:VARIANT][=CHECKPOINT]")
@click.option("--text", help="A text that goes in; - reads it from stdin.")
@click.option("--image", **_FILES, help="An image that goes in, and what it is for: goal=a.png.")
@click.option("--audio", **_FILES, help="Sound that goes in.")
@click.option("--video", **_FILES, help="A video that goes in.")
@click.option("--tensor", **_FILES, help="Tensors that go in: a .npy or .safetensors file.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME",
    help="An output to write; needed where several could be, and may then be given several times.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Where it goes; ends in {', '.join(SUFFIXES)}. The last holds all outputs, .json a record. "
    "A text is printed when this is left out.",
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
    text: str | None,
    image: Sequence[tuple[str, Path]],
    audio: Sequence[tuple[str, Path]],
    video: Sequence[tuple[str, Path]],
    tensor: Sequence[tuple[str, Path]],
    outputs: Sequence[str],
    out: Path | None,
    options: Sequence[tuple[str, Any]],
    seed: int | None,
    log_level: str,
    **choices: Any,
) -> None:
    """Run one request, and write what it gives into a file, without a server."""
    if out is not None:
        check_out(out)
    asked = _collect(options, seed)
    names = _chosen(name, choices["plugins"], out, outputs)
    parts = _text_part(text)
    for kind, files in {"image": image, "audio": audio, "video": video, "tensor": tensor}.items():
        parts += read_files(kind, files)
    if not parts:
        raise click.UsageError("nothing goes in; give it --text, --image, --audio, --video or --tensor")
    _check_request(name, choices, parts, names, asked)

    from rich.console import Console

    progress = Console(stderr=True)
    with progress.status(f"loading {name}"):
        from walkserve import Engine

        engine = Engine(name, **choices | {"offline": True})  # all of it is on this machine by now
    with engine, progress.status("generating"):
        began = time.perf_counter()
        result = engine.generate(parts=parts, outputs=names, **asked)
        took_s = time.perf_counter() - began
    if out is None:
        click.echo(getattr(result, names[0]))
        wrote = "printed"
    else:
        wrote = f"{out}: {write_out(out, {output: getattr(result, output) for output in names})}"
    sound = getattr(result, names[0])
    audio_s = len(sound.samples) / sound.rate if hasattr(sound, "samples") else 0
    factor = f", real-time factor {took_s / audio_s:.2f}" if audio_s else ""
    read, written = (result.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
    about = f"finish reason: {result.finish_reason}, seed: {result.seed}, tokens: {read} in, {written} out"
    # what is printed may go on into another program
    click.echo(f"{wrote} in {took_s:.2f} s{factor}\n{about}", err=out is None)


def _text_part(text: str | None) -> tuple[Part, ...]:
    if text is None:
        return ()
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise click.BadParameter("it is empty; there is nothing to say", param_hint="--text")
    return (Part("text", text),)


def _collect(options: Sequence[tuple[str, Any]], seed: int | None) -> dict[str, Any]:
    pairs = [*options, *([("seed", seed)] if seed is not None else [])]
    asked = dict(pairs)
    for key in asked:
        if sum(name == key for name, _ in pairs) > 1:
            raise click.BadParameter(f"{key} is given twice", param_hint="--option")
        if key in (*KINDS, "outputs", "parts"):
            raise click.BadParameter(f"{key} is no option of a model", param_hint="--option")
    return asked


def _chosen(name: str, plugins: Sequence[str], out: Path | None, outputs: Sequence[str]) -> tuple[str, ...]:
    """The outputs to write."""
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import load_model

    family = parse_model_name(name).family
    return chosen_outputs(family, load_model(family, plugins), out, outputs)


def _check_request(
    name: str,
    choices: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[str],
    asked: Mapping[str, Any],
) -> None:
    """Fetch the checkpoint's files and ask the model's own gate; neither reads weights nor imports torch."""
    from walkserve.plugins import load_model
    from walkserve.resolve import resolve_model

    config = resolve_model(name, **choices)
    model = load_model(config.family, config.plugins)(config.checkpoint)
    model.request(outputs=outputs, parts=parts, options=asked)
