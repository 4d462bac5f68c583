"""What a client asks of the routes for images, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from walkserve.http.extended_reading import Asked, read_asked
from walkserve.http.siblings import sibling_seeds
from walkserve.media.pictures import FORMATS, QUALITY, PictureFormat
from walkserve_sdk import Image, ImageAsk, Model, Request
from walkserve_sdk.errors import BadRequest, ComponentError, shown

GENERATIONS, EDITS = "images.generations", "images.edits"
FIELDS = {"text": "prompt"}
"""What a family calls something -> what it is called on the wire."""
MOST = 10
"""Pictures of one request."""
_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")

Whole = Annotated[int, Meta(ge=0)]


class ImageFields(Struct, frozen=True, kw_only=True):
    """What both routes have, as OpenAI defines it. Whatever else is sent is an option of the family."""

    prompt: Annotated[
        str, Meta(description="What is to be seen; not blank.", extra_json_schema={"pattern": r"\S"})
    ]
    n: Annotated[int, Meta(ge=1, le=MOST, description="How many; picture i has the seed plus i.")] | None = (
        None
    )
    size: (
        Annotated[
            str,
            Meta(
                description="`WIDTHxHEIGHT`, or `auto` for the model's own.",
                extra_json_schema={"pattern": f"^(auto|{_SIZE.pattern})$"},
            ),
        ]
        | None
    ) = None
    response_format: (
        Annotated[
            str,
            Meta(
                description="Pictures are in the answer; nothing is kept under an address.",
                extra_json_schema={"enum": ["b64_json"]},
            ),
        ]
        | None
    ) = None
    output_format: Annotated[Literal["png", "jpeg", "webp"], Meta(description="`png` if absent.")] | None = (
        None
    )
    output_compression: (
        Annotated[int, Meta(ge=0, le=100, description=f"How good JPEG and WebP are; {QUALITY} if absent.")]
        | None
    ) = None
    quality: Literal["auto"] | None = None
    background: Literal["auto", "opaque"] | None = None
    stream: Annotated[bool, Meta(description="Send events as pictures are made.")] | None = None
    partial_images: (
        Annotated[
            int,
            Meta(ge=0, le=3, description="How often to show a picture before it is done, where streamed."),
        ]
        | None
    ) = None


class EditFields(ImageFields, frozen=True, kw_only=True):
    """What an edit has besides."""

    image: Annotated[list[bytes], Meta(description="What is edited; one or more.")] | None = None
    images: Annotated[list[bytes], Meta(description="The same, as OpenAI's clients name several.")] | None = (
        field(default=None, name="image[]")
    )
    mask: Annotated[bytes, Meta(description="No model here takes one; a 400.")] | None = None


@dataclass(frozen=True, slots=True)
class Pictures:
    """One request for pictures, checked: what to ask which model, and how they leave.

    Args:
        model: Its name.
        requests: To the model, one for each picture.
        output: The name of the output that is the picture.
        previews: That of the output with what it looks like before; empty where there is none.
        quality: Of the files, where the format is lossy.
    """

    model: str
    requests: tuple[Request, ...]
    output: str
    previews: str
    format: PictureFormat
    quality: int
    is_streamed: bool


def read_pictures(models: Mapping[str, Model], surface: str, given: dict[str, Any]) -> Pictures:
    """Check what a client sent and make it the family's own requests.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    asked = read_asked(models, surface, EditFields if surface == EDITS else ImageFields, given)
    fields = asked.fields
    assert isinstance(fields, ImageFields)
    _check(fields, type(asked.model))
    images = _images(fields) if isinstance(fields, EditFields) else ()
    ask = ImageAsk(
        prompt=fields.prompt,
        images=images,
        size=_read_size(fields.size),
        partial_images=fields.partial_images or 0,
        options=asked.options,
    )
    make = asked.model.edit_request if surface == EDITS else asked.model.image_request
    first = _ask(make, ask)
    seeds = sibling_seeds(first.seed, fields.n or 1)
    others = (_ask(make, replace(ask, options={**asked.options, "seed": seed})) for seed in seeds[1:])
    format = FORMATS[fields.output_format or "png"]
    return Pictures(
        model=asked.name,
        requests=(first, *others),
        output=_output(asked, first),
        previews=asked.model.previews.name if asked.model.previews is not None else "",
        format=format,
        quality=QUALITY if fields.output_compression is None else fields.output_compression,
        is_streamed=bool(fields.stream),
    )


def _check(fields: ImageFields, family: type[Model]) -> None:
    if not fields.prompt.strip():
        raise BadRequest("prompt: there is nothing to paint", param="prompt")
    if fields.response_format not in (None, "b64_json"):
        why = (
            "this server keeps no picture, so there is no address to tell; ask for b64_json"
            if fields.response_format == "url"
            else f"{shown(fields.response_format)} is not offered; there is b64_json"
        )
        raise BadRequest(f"response_format: {why}", param="response_format")
    if fields.output_compression is not None and not FORMATS[fields.output_format or "png"].is_lossy:
        raise BadRequest(
            "output_compression: a PNG is never worse; leave it out, or ask for jpeg or webp",
            param="output_compression",
        )
    if not fields.partial_images:
        return
    if not fields.stream:
        raise BadRequest("partial_images: they are events; send stream: true", param="partial_images")
    if family.previews is None:
        raise BadRequest(
            "partial_images: this model shows no picture before it is done; leave them out",
            param="partial_images",
        )


def _images(fields: EditFields) -> tuple[bytes, ...]:
    if fields.mask is not None:
        raise BadRequest(
            "mask: it is not taken; leave it out, and say in the prompt where to edit", param="mask"
        )
    if fields.image and fields.images:
        raise BadRequest("image and image[] are the same field; send one of them", param="image[]")
    images = fields.image or fields.images
    if not images:
        raise BadRequest("'image' is missing", param="image", code="missing_required_parameter")
    return tuple(images)


def _read_size(text: str | None) -> tuple[int, int] | None:
    if text is None or text == "auto":
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadRequest(
            f"size: it is WIDTHxHEIGHT, as in 1024x768, or auto, got {shown(text, 60)}", param="size"
        )
    return int(found[1]), int(found[2])


def _ask(make: Callable[[ImageAsk], Request], ask: ImageAsk) -> Request:
    try:
        return make(ask)
    except BadRequest as wrong:
        wrong.param = FIELDS.get(wrong.param or "", wrong.param)
        raise


def _output(asked: Asked, request: Request) -> str:
    for name in request.outputs:
        output = asked.model.spec.outputs[name]
        if isinstance(output.kind, Image) and output is not asked.model.previews:
            return name
    raise ComponentError(f"{asked.name}: its request asks for no output that is an image")
