"""Model: what a family subclasses; it collects what the class body declares and has it checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from walkserve_sdk import requests, surfaces
from walkserve_sdk.checkpoints import Checkpoint, Hub
from walkserve_sdk.checks import check
from walkserve_sdk.checks_tracks import asked_by
from walkserve_sdk.components import Component, OnBranch
from walkserve_sdk.errors import BadRequest, UnsupportedSurface, did_you_mean
from walkserve_sdk.graph import Walk, WalkGraph
from walkserve_sdk.ports import Output
from walkserve_sdk.requests import Part, Request
from walkserve_sdk.streams import Stream
from walkserve_sdk.tracks import Outcome, TrackSpec

API_LEVEL = 1
"""Raised when a plugin written for an earlier level would no longer work."""

MOST_NAME = 100
"""Characters of a part's name."""

Budget = Mapping[Component | OnBranch, tuple[int, int]]
"""Per cached component: tokens it starts with, and the most it may add to them, on each of its branches.

Per branch that is forked, ``component.on("branch")``: the same of what it does not share with the one that
it is forked from."""


@dataclass(frozen=True)
class ModelSpec:
    """A checked declaration.

    ``readers`` and ``writers`` name the one track at each end of a stream, ``walks`` the graphs that a track
    may ask for, in the order it mentions them, and ``prepares`` those that ``prepare`` may.
    """

    name: str
    components: Mapping[str, Component]
    streams: Mapping[str, Stream]
    outputs: Mapping[str, Output]
    graphs: Mapping[str, WalkGraph]
    tracks: Mapping[str, TrackSpec]
    readers: Mapping[str, str]
    writers: Mapping[str, str]
    walks: Mapping[str, tuple[str, ...]]
    prepares: tuple[str, ...]


class Model:
    """A family of models: components, WalkGraphs, streams, outputs and tracks, declared in a class body.

    One instance serves one checkpoint. Subclassing checks the declaration; a mistake is a
    ``DeclarationError`` with its cure.
    """

    Options: ClassVar[type[requests.Options]] = requests.Options
    inputs: ClassVar[tuple[str, ...]] = ("text",)
    """Kinds of part a request may have."""
    checkpoints: ClassVar[Mapping[str, Hub]] = MappingProxyType({})
    """The published checkpoint, by part; the main one is ``"main"``, others are its sub-folders."""
    variants: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Further checkpoints by name: a folder inside the plugin's package, or a hub id."""
    length_option: ClassVar[str] = "max_tokens"
    """The option that bounds how far a request may grow; where a client left it out, its default is cut to
    what fits, and only one that was set is refused."""
    own_surfaces: ClassVar[tuple[str, ...]] = ()
    """Surfaces besides the standard ones: of routes that its plugin adds (``walkserve_sdk.serving``)."""
    takes_instructions: ClassVar[bool] = False
    """Whether ``speech_request`` reads ``SpeechAsk.instructions``; where not, a client that sends some is
    refused before."""
    takes_speed: ClassVar[bool] = False
    """Whether it reads ``SpeechAsk.speed``; where not, it is always 1."""
    previews: ClassVar[Output | None] = None
    """``previews = Output(Image(), many=True)``: what a picture looks like before it is done. Then
    ``image_request`` reads ``ImageAsk.partial_images``; of a family without it, a client that wants to see
    some is refused before."""
    token_scores: ClassVar[Output | None] = None
    """``token_scores = Output(Record(), many=True)``: one record for each token of the text, in order, with
    what ``walkserve_sdk.nn.scores`` tells of it. Then ``chat_request`` reads ``ChatAsk.top_logprobs``; of a
    family without it, a client that wants to know how likely tokens were is refused before."""
    voices: Sequence[str] = ()
    """Those of this checkpoint, as it spells them; the first speaks where a client names none. Read by
    ``setup``, for they are the checkpoint's and not the family's. Clients are told them."""
    context: int | None = None
    """Tokens that the checkpoint's context holds, where ``setup`` can read it; for whoever asks what the
    model is. What a request may have is decided by its components (``KVShape.context``)."""
    spec: ClassVar[ModelSpec]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        members: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if members.get(name) is None:  # the base's "none" has no place in the family's order
                    members.pop(name, None)
                members[name] = value
        found: dict[type, dict[str, Any]] = {
            kind: {name: value for name, value in members.items() if isinstance(value, kind)}
            for kind in (Component, Stream, Output, WalkGraph, TrackSpec)
        }
        readers, writers = check(cls, found)
        cls.spec = ModelSpec(
            name=cls.__name__,
            components=found[Component],
            streams=found[Stream],
            outputs=found[Output],
            graphs=found[WalkGraph],
            tracks=found[TrackSpec],
            readers=readers,
            writers=writers,
            walks={track.name: asked_by(cls, track.function, found) for track in found[TrackSpec].values()},
            prepares=asked_by(cls, cls.prepare, found),
        )

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint if checkpoint is not None else Checkpoint()
        self.setup()

    # --- what a family may override ---------------------------------------------------------------

    def setup(self) -> None:
        """Read what the checkpoint's small files say about it (``voices``, limits). No torch here."""

    def check(self, request: Request) -> Request:
        """Refuse or normalise a request, before admission. Raises BadRequest."""
        return request

    def prepare(self, request: Request) -> Walk | None:
        """A Walk of CPU components that runs before admission, so that sizes are known; None for none."""
        return None

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        """Tokens each cached component starts with, and the most it may add: see ``Budget``."""
        return {}

    def warm_up(self) -> Request | None:
        """A small request that passes through every component; the server is ready once it has."""
        return None

    def speech_request(self, ask: surfaces.SpeechAsk) -> Request:
        """Make a request of ``POST /v1/audio/speech``. Overriding it gives the family that route."""
        raise self._without("speak")

    def image_request(self, ask: surfaces.ImageAsk) -> Request:
        """Make a request of ``POST /v1/images/generations``. Overriding it gives the family that route."""
        raise self._without("paint")

    def edit_request(self, ask: surfaces.ImageAsk) -> Request:
        """Make a request of ``POST /v1/images/edits``: ``ask`` has at least one image. Overriding it gives
        the family that route; where it is the same as painting, with ``edit_request = image_request``."""
        raise self._without("edit images")

    def chat_request(self, ask: surfaces.ChatAsk) -> Request:
        """Make a request of ``POST /v1/chat/completions``. Overriding it gives the family that route."""
        raise self._without("chat")

    def _without(self, what: str) -> UnsupportedSurface:
        return UnsupportedSurface(
            f"this model does not {what}; it offers {', '.join(self.surfaces()) or 'no route'}"
        )

    # --- what the runtime and a family use --------------------------------------------------------

    def request(
        self,
        *,
        outputs: Sequence[str | Output] | None = None,
        parts: Sequence[Part] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Request:
        """Check what a client asks and complete it: the one gate through which every request comes.

        Raises:
            BadRequest: An unknown output, option or kind of part, or a value out of range.
        """
        known = self.spec.outputs
        asked = (outputs,) if isinstance(outputs, str) else tuple(known) if outputs is None else outputs
        names = tuple(each.name if isinstance(each, Output) else each for each in asked)
        for name in names:
            if name not in known:
                raise BadRequest(f"there is no output {name!r}{did_you_mean(name, known)}", param="outputs")
        if not names:
            raise BadRequest(f"no output is asked for; known: {', '.join(known)}", param="outputs")
        for part in parts:
            if part.kind not in self.inputs:
                raise BadRequest(
                    f"this model takes no {part.kind}; it takes {', '.join(self.inputs)}", param=part.kind
                )
            if not isinstance(part.data, str if part.kind == "text" else bytes):
                what = "a str" if part.kind == "text" else "bytes"
                raise BadRequest(f"{part.kind} is {what}, not {part.data!r:.60}", param=part.kind)
            if not isinstance(part.name, str) or len(part.name) > MOST_NAME:
                raise BadRequest(
                    f"{part.kind}: its name is text of at most {MOST_NAME} characters, not {part.name!r:.60}",
                    param=part.kind,
                )
        given = dict(options or {})
        checked = requests.read_options(self.Options, given)
        seed = requests.fresh_seed() if checked.seed is None else checked.seed
        return self.check(Request(tuple(parts), names, checked, seed, frozenset(given)))

    @classmethod
    def surfaces(cls) -> tuple[str, ...]:
        """By which surfaces it is reached, of the standard ones and of its own."""
        standard = (
            name
            for name, method in surfaces.SURFACES.items()
            if getattr(cls, method) is not getattr(Model, method)
        )
        return (*standard, *cls.own_surfaces)
