"""``walkserve describe``: what a model is, from its declaration and its checkpoint's small files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click
from msgspec import Struct

from walkserve import descriptions as cards
from walkserve_sdk.errors import LoadError

if TYPE_CHECKING:
    from walkserve.model_names import ModelName
    from walkserve_sdk import Model


@click.command("describe")
@click.argument("name", metavar="NAME[:VARIANT][=CHECKPOINT]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(name: str, as_json: bool) -> None:
    """Say what a model is: its routes, options, limits, voices, parts and files.

    Nothing is downloaded and no weights are read. Of a checkpoint that is not on this machine, only the
    family is described.
    """
    about = describe(name)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(about), indent=2))
    else:
        from walkserve.cli.describe_page import print_page

        print_page(about)


class LimitsCard(Struct, frozen=True):
    """What bounds a request: tokens of the checkpoint's context, None where unknown; bytes of a JSON body."""

    context: int | None
    body_bytes: int


class FilesCard(Struct, frozen=True):
    """One part of a checkpoint: where it is published, and where it is here, each None where it is not."""

    repo: str | None
    files: tuple[str, ...]
    folder: str | None


class CheckpointCard(Struct, frozen=True):
    """A checkpoint. ``problem`` says why it cannot be served as it is, or is empty."""

    label: str
    is_here: bool
    problem: str
    parts: dict[str, FilesCard]


class Description(Struct, frozen=True, kw_only=True):
    """A model. ``voices`` is None where the checkpoint is not here to be asked, ``ranges`` are in words."""

    name: str
    family: str
    summary: str
    plugin: str
    inputs: tuple[str, ...]
    outputs: dict[str, cards.OutputCard]
    surfaces: dict[str, list[str]]
    voices: tuple[str, ...] | None
    limits: LimitsCard
    options: dict[str, cards.OptionCard]
    ranges: dict[str, str]
    components: dict[str, cards.ComponentCard]
    graphs: dict[str, cards.GraphCard]
    prepares: tuple[str, ...]
    tracks: dict[str, cards.TrackCard]
    streams: dict[str, cards.StreamCard]
    variants: dict[str, str]
    checkpoint: CheckpointCard


def describe(text: str) -> Description:
    """What ``NAME[:VARIANT][=CHECKPOINT]`` is.

    Raises:
        SettingError: No such model is installed, or the family has no such variant.
        PluginError: It is installed and cannot be used.
    """
    from walkserve.extensions import load_extensions
    from walkserve.http.settings import HttpSettings
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import find_models, load_model

    name = parse_model_name(text)
    claim = find_models().one(name.family)
    family = load_model(name.family)
    model, checkpoint = _model(name, family)
    notes = cards.notes_of(model)
    spec = family.spec
    return Description(
        name=name.served,
        family=name.family,
        summary=claim.notes.summary or cards.first_line(family),
        plugin=claim.plugin,
        inputs=family.inputs,
        outputs=cards.output_cards(family),
        surfaces=cards.surface_routes(family, load_extensions((claim.distribution,)).surfaces),
        voices=tuple(model.voices) if checkpoint.is_here else None,
        limits=LimitsCard(model.context if checkpoint.is_here else None, HttpSettings().body_bytes),
        options=cards.option_cards(notes),
        ranges={note.name: note.range for note in notes},
        components={name: cards.component_card(part) for name, part in spec.components.items()},
        graphs=cards.graph_cards(family),
        prepares=spec.prepares,
        tracks=cards.track_cards(family),
        streams=cards.stream_cards(family),
        variants={variant: claim.notes.variants.get(variant, "") for variant in family.variants},
        checkpoint=checkpoint,
    )


def _model(name: ModelName, family: type[Model]) -> tuple[Model, CheckpointCard]:
    """The family with its checkpoint where that is on this machine and can be read, else without one."""
    from walkserve.checkpoints import HubAccess, resolve_checkpoint

    label, problem = name.checkpoint or name.served, ""
    try:
        checkpoint = resolve_checkpoint(name, family, access=HubAccess(offline=True))
        model = family(checkpoint)
    except LoadError as error:
        model, problem = family(), str(error)
    folders = {} if problem else model.checkpoint.folders
    parts = {
        part: FilesCard(
            repo=None if name.variant or (name.checkpoint and part == "main") else hub.repo or hub.elsewhere,
            files=hub.files,
            folder=str(folders[part]) if part in folders else None,
        )
        for part, hub in family.checkpoints.items()
    }
    return model, CheckpointCard(label, not problem, problem, parts)
