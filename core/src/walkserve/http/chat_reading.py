"""What a client asks of ``POST /v1/chat/completions``, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from walkserve.http.bodies import read_fields
from walkserve.http.chat_messages import Said, read_messages
from walkserve.http.models import named_model, require_surface
from walkserve.http.siblings import sibling_seeds
from walkserve_sdk import ChatAsk, Image, Model, Request, Text
from walkserve_sdk.errors import BadRequest, ComponentError
from walkserve_sdk.ports import Kind
from walkserve_sdk.requests import option_paths, unknown_option

SURFACE = "chat.completions"
MOST = 16
"""Answers to one request, and strings that may end one."""
MOST_STOP = 256
"""Characters of such a string."""
MOST_TOP = 20

Length = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=MOST_STOP)]


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What else is streamed."""

    include_usage: bool | None = None


class ChatFields(Struct, frozen=True, kw_only=True):
    """The fields that OpenAI defines and this route has. Whatever else is sent is an option of the family."""

    model: Annotated[
        str, Meta(description="A model's id, or its family's name where one model of it is served.")
    ]
    messages: Annotated[list[Said], Meta(min_length=1, description="What was said, in order.")]
    modalities: (
        Annotated[
            list[Literal["text", "image"]],
            Meta(min_length=1, max_length=2, description='What the answer has; `["text"]` if absent.'),
        ]
        | None
    ) = None
    max_completion_tokens: Annotated[Length, Meta(description="The most tokens of an answer.")] | None = None
    max_tokens: Annotated[Length, Meta(description="The same, as it used to be called.")] | None = None
    stop: (
        Stop
        | Annotated[list[Stop], Meta(max_length=MOST, description="Strings before which an answer ends.")]
        | None
    ) = None
    n: Annotated[int, Meta(ge=1, le=MOST, description="How many; answer i has the seed plus i.")] | None = (
        None
    )
    stream: Annotated[bool, Meta(description="Send events as the answer is written.")] | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[bool, Meta(description="Tell how likely each token was.")] | None = None
    top_logprobs: (
        Annotated[int, Meta(ge=0, le=MOST_TOP, description="How many likely others; with `logprobs`.")] | None
    ) = None


@dataclass(frozen=True, slots=True)
class Chat:
    """One request for answers, checked: what to ask which model, and how they leave.

    Args:
        model: Its name.
        requests: To the model, one for each answer.
        text: The name of the output that is the text; None where none was asked for.
        image: The same of images.
        token_scores: That of the output with what is told of tokens; empty where there is none.
        top: How many likely tokens are told for each; None where nothing is told of tokens.
        has_usage: Whether a stream tells it.
        called: What the family calls something -> what its client does.
    """

    model: str
    requests: tuple[Request, ...]
    text: str | None
    image: str | None
    token_scores: str
    stops: tuple[str, ...]
    top: int | None
    is_streamed: bool
    has_usage: bool
    called: Mapping[str, str]


def read_chat(models: Mapping[str, Model], given: dict[str, Any], *, media_bytes: int) -> Chat:
    """Check what a client sent and make it the family's own requests.

    Args:
        media_bytes: What one image may have.

    Raises:
        BadRequest: With the field at fault; nothing that was sent is ignored.
    """
    name, model = named_model(models, given)
    require_surface(name, model, SURFACE)
    fields, rest = read_fields(ChatFields, given)
    family = type(model)
    for field in rest:
        if field not in option_paths(family.Options):
            raise unknown_option(family.Options, field, what="field", also=ChatFields.__struct_fields__)
    _check(fields, family)
    length = _length_field(fields, family, rest)
    ask = ChatAsk(
        messages=read_messages(fields.messages, media_bytes=media_bytes),
        modalities=tuple(dict.fromkeys(fields.modalities or ("text",))),
        top_logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        options=rest if length is None else {**rest, family.length_option: getattr(fields, length)},
    )
    called = {"text": "messages", "image": "messages"}
    if length is not None:
        called[family.length_option] = length
    first = _ask(model, ask, called)
    seeds = sibling_seeds(first.seed, fields.n or 1)
    others = (_ask(model, replace(ask, options={**ask.options, "seed": seed}), called) for seed in seeds[1:])
    text, image = _output(model, first, Text), _output(model, first, Image)
    if text is None and image is None:
        raise ComponentError(f"{name}: its chat_request asks for neither text nor an image")
    return Chat(
        model=name,
        requests=(first, *others),
        text=text,
        image=image,
        token_scores=model.token_scores.name if model.token_scores is not None else "",
        stops=(fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        top=ask.top_logprobs,
        is_streamed=bool(fields.stream),
        has_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
        called=called,
    )


def _check(fields: ChatFields, family: type[Model]) -> None:
    if fields.stream_options is not None and not fields.stream:
        raise BadRequest("stream_options: they are of a stream; send stream: true", param="stream_options")
    if fields.top_logprobs is not None and not fields.logprobs:
        raise BadRequest("top_logprobs: send logprobs: true with it", param="top_logprobs")
    if fields.logprobs and family.token_scores is None:
        raise BadRequest(
            "logprobs: this model does not tell how likely its tokens were; leave it out", param="logprobs"
        )
    makes = {output.kind.kind for output in family.spec.outputs.values()}
    for wanted in fields.modalities or ():
        if wanted not in makes:
            there = ", ".join(kind for kind in ("text", "image") if kind in makes)
            raise BadRequest(
                f"modalities: this model makes no {wanted}; it makes {there}", param="modalities"
            )


def _length_field(fields: ChatFields, family: type[Model], rest: Mapping[str, Any]) -> str | None:
    """By which of its names a client has said how long an answer may be."""
    said = [name for name in ("max_completion_tokens", "max_tokens") if getattr(fields, name) is not None]
    if not said:
        return None
    if len(said) > 1 or family.length_option in rest:
        also = said[1] if len(said) > 1 else family.length_option
        raise BadRequest(f"{said[0]} and {also} are the same; send one of them", param=also)
    if family.length_option not in option_paths(family.Options):
        raise BadRequest(f"{said[0]}: how long an answer of this model is cannot be said", param=said[0])
    return said[0]


def _ask(model: Model, ask: ChatAsk, called: Mapping[str, str]) -> Request:
    try:
        return model.chat_request(ask)
    except BadRequest as wrong:
        wrong.param = called.get(wrong.param or "", wrong.param)
        raise


def _output(model: Model, request: Request, kind: type[Kind]) -> str | None:
    own = (model.previews, model.token_scores)
    for name in request.outputs:
        output = model.spec.outputs[name]
        if isinstance(output.kind, kind) and output not in own:
            return name
    return None
