"""``walkserve replay``: a request's tracks walked again by its journal, without weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec import Struct

from walkserve.cli.settings import FILE
from walkserve.errors import SettingError
from walkserve_sdk.errors import WalkserveError

if TYPE_CHECKING:
    from walkserve.conductor.replay import Replay
    from walkserve.journal.reading import Recorded
    from walkserve.model_names import ModelName
    from walkserve.plugins import Claim
    from walkserve_sdk import Model

AGREE, PART = 0, 1


@click.command("replay")
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--model",
    "name",
    metavar="NAME[:VARIANT][=CHECKPOINT]",
    help="Walk it by this model instead of the one the journal names.",
)
@click.option(
    "--media",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A file the request had, for a plan that looks into it; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(file: Path, name: str | None, files: tuple[Path, ...], as_json: bool) -> int:
    """Walk a request's tracks again by its journal, and show where plan and journal part.

    FILE is a journal that a server with --journal has written. No weights are read and nothing is computed:
    what the workers said stands in the journal. Exits with 0 if they agree, 1 if they part.
    """
    from walkserve.conductor.replay import replay
    from walkserve.journal.reading import read_journal

    recorded = read_journal(file)
    media = _media(files)
    model, notes = _model(recorded, name)
    notes += _about_media(recorded, media)
    result = replay(recorded, model, media)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(_report(file, recorded, result, notes)), indent=2))
    else:
        from walkserve.cli.replay_page import print_page

        print_page(file, recorded, result, notes)
    return AGREE if result.parting is None else PART


class PartingCard(Struct, frozen=True):
    """Where they part. ``journal`` or ``plan`` is None where it has nothing at that place."""

    line: int
    place: str
    journal: str | None
    plan: str | None
    differences: list[str]


class EntryCard(Struct, frozen=True):
    """One line of the journal."""

    line: int
    at_ms: float
    place: str
    says: str


class Report(Struct, frozen=True):
    """A replay: ``agrees`` as far as the journal goes; ``cut`` says why that is not to the request's end."""

    file: str
    agrees: bool
    cut: str
    parting: PartingCard | None
    notes: list[str]
    errors: list[str]
    entries: list[EntryCard]


def _report(file: Path, recorded: Recorded, result: Replay, notes: list[str]) -> Report:
    from walkserve.journal.words import differences, place, says

    parting, card = result.parting, None
    if parting is not None:
        journal, plan = parting.journal, parting.plan
        where = place(journal) if journal is not None else place(plan) if plan is not None else ""
        card = PartingCard(
            parting.line,
            where,
            None if journal is None else says(journal),
            None if plan is None else says(plan),
            differences(journal, plan) if journal is not None and plan is not None else [],
        )
    entries = [
        EntryCard(line, entry.at_ms, place(entry), says(entry))
        for line, entry in enumerate(recorded.entries, 1)
    ]
    errors = [f"{type(error).__name__}: {error}" for error in result.errors]
    return Report(str(file), parting is None, recorded.cut, card, notes, errors, entries)


# --- what it is walked by -----------------------------------------------------------------------------


def _model(recorded: Recorded, text: str | None) -> tuple[Model, list[str]]:
    """The family that served the request, or the one that is named; and what a reader has to know of it.

    Raises:
        SettingError: It is not installed, or cannot be used.
    """
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import find_models, load_model

    origin = recorded.opened.origin
    name = parse_model_name(text) if text is not None else _named(recorded)
    try:
        claim = find_models().one(name.family)
        model, notes = _with_checkpoint(name, load_model(name.family))
    except WalkserveError as error:
        raise SettingError(
            f"{error} (the journal is of {origin.family}, by {origin.plugin} {origin.version}; "
            "--model names another)"
        ) from error
    return model, [*_other_version(recorded, claim), *notes]


def _named(recorded: Recorded) -> ModelName:
    """The model as it was named when it was served, as far as the journal knows."""
    from walkserve.model_names import ModelName

    opened = recorded.opened
    family, checkpoint = opened.origin.family, opened.origin.checkpoint
    variant = opened.model.partition(":")[2]
    return ModelName(family, variant, "" if checkpoint == opened.model else checkpoint)


def _with_checkpoint(name: ModelName, family: type[Model]) -> tuple[Model, list[str]]:
    """With its checkpoint's small files where they are on this machine; most plans need none of them."""
    from walkserve.checkpoints import HubAccess, resolve_checkpoint
    from walkserve_sdk import Checkpoint

    try:
        return family(resolve_checkpoint(name, family, access=HubAccess(offline=True))), []
    except WalkserveError as error:
        note = (
            f"walked without a checkpoint, which a plan may ask for limits or voices: {error}; --model "
            f"{name.served}=FOLDER says where it is"
        )
        label = name.checkpoint or name.served
        return family(Checkpoint({}, label)), [note]


def _other_version(recorded: Recorded, claim: Claim) -> list[str]:
    origin = recorded.opened.origin
    written_by, here = f"{origin.plugin} {origin.version}", claim.plugin
    return [] if written_by == here else [f"the journal was written with {written_by}; this is {here}"]


def _media(files: tuple[Path, ...]) -> dict[str, bytes]:
    from hashlib import sha256

    contents = (file.read_bytes() for file in files)
    return {sha256(data).hexdigest(): data for data in contents}


def _about_media(recorded: Recorded, media: dict[str, bytes]) -> list[str]:
    """What of the request is missing here, and what was given that is not of it."""
    from walkserve.journal.reading import absent_media

    own = {part.media.sha256 for part in recorded.opened.parts if part.media is not None}
    notes = [
        f"--media: the journal has no part with the SHA-256 {digest}" for digest in media if digest not in own
    ]
    notes += [
        f"a part of {each.size_bytes:,} bytes is not here (SHA-256 {each.sha256}); a plan that looks into it "
        "needs --media FILE"
        for each in absent_media(recorded, media)
    ]
    return notes
