"""What is checked of a declaration when it is imported, each mistake answered with its cure."""

from __future__ import annotations

import dataclasses
import re

from walkserve_sdk.checks_graph import Found, GraphCheck, check_owned
from walkserve_sdk.checks_tracks import check_acyclic, check_prepare, check_used, stream_ends
from walkserve_sdk.errors import DeclarationError
from walkserve_sdk.graph import WalkGraph
from walkserve_sdk.ports import Image, Kind, Output, Record
from walkserve_sdk.requests import Options
from walkserve_sdk.streams import Stream
from walkserve_sdk.surfaces import SURFACES
from walkserve_sdk.tracks import TrackSpec

_SURFACE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def check(model: type, found: Found) -> tuple[dict[str, str], dict[str, str]]:
    """Check a model's class body; returns the reading and the writing track of every stream, by name.

    Raises:
        DeclarationError: The first mistake found, as ``Model.member: what is wrong; the cure``.
    """
    _check_options(model)
    _check_surfaces(model)
    _check_output(model, "previews", Image)
    _check_output(model, "token_scores", Record)
    for graph in found[WalkGraph].values():
        GraphCheck(model, graph, found).run()
    for track in found[TrackSpec].values():
        for stream in track.writes:
            check_owned(f"{model.__name__}.{track.name}", stream, found[Stream], "Stream")
    check_prepare(model, found)
    readers, writers = stream_ends(model, found)
    check_acyclic(model, readers, writers)
    check_used(model, found)
    return readers, writers


def _check_options(model: type) -> None:
    options = getattr(model, "Options", None)
    place = f"{model.__name__}.Options"
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise DeclarationError(f"{place}: it is no class of options; write class Options(Model.Options)")
    if "__dataclass_fields__" not in vars(options):
        raise DeclarationError(f"{place}: it is no dataclass; write @dataclass(frozen=True) above it")
    for item in dataclasses.fields(options):
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise DeclarationError(f"{place}: {item.name!r} has no default; a client may leave it out")


def _check_surfaces(model: type) -> None:
    own: object = getattr(model, "own_surfaces", ())
    place = f"{model.__name__}.own_surfaces"
    if not (
        isinstance(own, tuple) and all(isinstance(name, str) and _SURFACE.fullmatch(name) for name in own)
    ):
        raise DeclarationError(
            f"{place}: it is a tuple of names like 'rollouts' or 'video.edits', got {own!r}"
        )
    for name in own:
        if name in SURFACES:
            raise DeclarationError(
                f"{place}: {name!r} is a standard surface; a family has it by its method {SURFACES[name]}"
            )


def _check_output(model: type, name: str, kind: type[Kind]) -> None:
    """One whose name says what it is for."""
    found = getattr(model, name, None)
    if found is not None and not (
        isinstance(found, Output) and isinstance(found.kind, kind) and found.many and found.name == name
    ):
        raise DeclarationError(
            f"{model.__name__}.{name}: it is declared here, {name} = Output({kind.__name__}(), many=True),"
            f" got {found!r}"
        )
