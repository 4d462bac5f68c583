"""What schemathesis cannot know: a model that is served here, and that short answers are enough."""

import base64

import schemathesis

MODELS = {"input": "orpheus:toy", "prompt": "easel", "messages": "easel"}
"""By a field that its route has."""
DOT = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"


@schemathesis.hook
def map_headers(context, headers):
    """A time that is too short is an error of the server's, as it should be."""
    try:
        is_short = 0 < float(headers["x-timeout-s"]) < 30
    except (KeyError, TypeError, ValueError):
        return headers
    return headers | {"x-timeout-s": "30"} if is_short else headers


@schemathesis.hook
def map_body(context, body):
    """Leave what is wrong as it is; of what could be answered, ask a model here for little."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return body
    for field, model in MODELS.items():
        if isinstance(body.get(field), str | list):
            return body | {"model": model} | _little(field, body)
    return body


def _little(field, body):
    """Options that make it short, in place of others that are valid, and images that are some."""
    match field:
        case "input":
            return {"max_tokens": 14, "constrain": True}
        case "prompt":
            seen = {"image": [DOT for _ in body["image"]]} if _is_list(body.get("image")) else {}
        case _:
            seen = {"messages": [_seen(message) for message in body["messages"]]}
    little = {name: value for name, (value, good) in EASY.items() if name in body and good(body[name])}
    return {"max_tokens": 3} | {name: body[name] for name in ("max_tokens",) if name in body} | little | seen


def _is_within(least, most):
    return lambda value: type(value) is int and least <= value <= most


EASY = {
    "max_tokens": (3, _is_within(1, 2**31 - 1)),
    "steps": (2, _is_within(1, 100)),
    "turn_ms": (0, _is_within(0, 10_000)),
    "fail": ("", lambda value: value == "turn"),
}
"""Of the family's options: what to ask for, in place of what else may be."""


def _is_list(value):
    return isinstance(value, list) and value


def _seen(message):
    """With images that are some."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    url = f"data:image/gif;base64,{base64.b64encode(DOT).decode()}"
    content = [
        part | {"image_url": {"url": url}}
        if isinstance(part, dict) and part.get("type") == "image_url"
        else part
        for part in message["content"]
    ]
    return message | {"content": content}
