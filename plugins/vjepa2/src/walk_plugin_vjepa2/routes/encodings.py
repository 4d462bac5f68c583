"""``POST /v1/encodings``: the latents of a video or of frames, and those of hidden places."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from walk_plugin_vjepa2.routes.answers import NPY, SAFETENSORS, Numbers, as_file, check_outputs, maybe
from walk_plugin_vjepa2.routes.fields import EXAMPLE_FRAME, Seen, SentTensor
from walk_plugin_vjepa2.routes.gathering import gather
from walk_plugin_vjepa2.routes.tasks import refuse_task
from walkserve_sdk.errors import BadRequest
from walkserve_sdk.serving import Exchange, Route

_PLACES = "indices of the clip's tokens (tubelet x rows + row) x columns + column; all of them when left out"


class Encoding(Seen, frozen=True, kw_only=True):
    """What to encode, and what to guess of it."""

    context: Annotated[
        SentTensor | None, Meta(description=f"Of a masked prediction, the places seen: {_PLACES}.")
    ] = None
    target: Annotated[
        SentTensor | None, Meta(description=f"Of a masked prediction, the places guessed: {_PLACES}.")
    ] = None
    outputs: Annotated[
        Annotated[list[Literal["latents", "predicted"]], Meta(min_length=1)] | None,
        Meta(
            description="What is wanted. Left out: latents, and with context or target the predicted ones.",
        ),
    ] = None


class Encoded(Struct, frozen=True):
    """What came of it.

    ``latents`` of a clip (``vjepa2``) are [tokens, width], pooled [width]; of a robot's frames
    (``vjepa2-ac``), each by itself, [frames, tokens, width], pooled [frames, width]. ``predicted`` is
    [places in target, width].
    """

    latents: Numbers | None
    predicted: Numbers | None


async def encode(exchange: Exchange[Encoding]) -> object:
    fields = exchange.fields
    seen = await gather(fields, tensors=("frames", "context", "target"))
    seen.require_one("frames", "video", what="what is to be encoded")
    hidden = [name for name in ("context", "target") if name in seen.names]
    outputs = fields.outputs or ["latents", *(["predicted"] if hidden else [])]
    options: dict[str, Any] = {}
    if "predicted" not in exchange.model.spec.outputs:
        refuse_task(exchange, "encode")
        options = {"task": "encode"}
        if hidden or "predicted" in outputs:
            raise BadRequest(
                f"{exchange.name} predicts nothing that is hidden; it encodes frames, and rolls actions out",
                param=hidden[0] if hidden else "outputs",
            )
    elif hidden and "predicted" not in outputs:
        raise BadRequest(f"{hidden[0]} is of what is predicted; ask for that in outputs", param=hidden[0])
    check_outputs(exchange.media_type, outputs)
    running = await exchange.start(exchange.request(parts=seen.parts, outputs=outputs, options=options))
    result = await running.result()
    made = {name: result.outputs.get(name) for name in ("latents", "predicted")}
    if exchange.media_type in (SAFETENSORS, NPY):
        return await as_file(made, exchange.media_type)
    return Encoded(**{name: maybe(array, fields.encoding_format) for name, array in made.items()})


ROUTE = Route(
    path="/v1/encodings",
    surface="encodings",
    handle=encode,
    fields=Encoding,
    answer=Encoded,
    media={SAFETENSORS: "Tensors `latents` and `predicted`.", NPY: "The one tensor asked for."},
    summary="Encode a video or frames",
    description="Latents, one for each patch, or pooled; of a clip also those of hidden places, predicted "
    "from the ones seen. Send `frames` or `video`. A single frame fills a tubelet by itself. Pictures are "
    "made to fit as transformers' processor does for a video encoder, and as the authors' planner does for "
    "a world model.",
    example={
        "frames": [EXAMPLE_FRAME],
        "pooled": True,
    },
    example_answer={
        "latents": {"dtype": "float32", "shape": [1, 2], "data": "AAAAPwAAgL4="},
        "predicted": None,
    },
)
