"""What schemathesis cannot know: a model that is served here, and that two words are enough."""

import schemathesis

QUIET = {"fail": "", "again": 0, "prepare_ms": 0, "read_ms": 0, "turn_ms": 0, "tell_ms": 0, "width": 8}
TROUBLES = ("", "check", "prepare", "budget", "plan", "turn", "teller")


@schemathesis.hook
def map_body(context, body):
    """Leave what is wrong as it is; of what could be served, ask for little, and for no trouble."""
    if not (
        isinstance(body, dict) and isinstance(body.get("model"), str) and isinstance(body.get("text"), str)
    ):
        return body
    quiet = {name: value for name, value in QUIET.items() if name in body and _is_right(name, body[name])}
    return body | quiet | {"model": "trial", "max_tokens": 2}


def _is_right(name, value):
    if name == "fail":
        return value in TROUBLES
    return type(value) is int and (1 if name == "width" else 0) <= value <= 10_000


@schemathesis.hook
def map_headers(context, headers):
    """A time that is over before anything can be done makes a 504, which is right and proves nothing."""
    try:
        is_short = 0 < float(headers["x-timeout-s"]) < 30
    except (KeyError, TypeError, ValueError):
        return headers
    return {**headers, "x-timeout-s": "30"} if is_short else headers
