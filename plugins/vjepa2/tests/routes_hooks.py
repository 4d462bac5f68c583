"""What schemathesis cannot know: what is served, a scene that fits it, and that little is enough."""

import base64

import numpy as np
import schemathesis

from walkserve_sdk.arrays import write_safetensors

FRAME = np.full((1, 8, 8, 3), 128, np.uint8)
STATES = np.zeros((1, 7), np.float32)
ACTIONS = np.zeros((2, 1, 7), np.float32)
SCENES = {
    "/v1/encodings": {"frames": FRAME},
    "/v1/rollouts": {"frames": FRAME, "states": STATES, "goal": FRAME[0], "actions": ACTIONS},
    "/v1/plans": {"frames": FRAME, "states": STATES, "goal": FRAME[0]},
}
SMALL = {
    "horizon": (1, 1024, 1),
    "samples": (2, 65_536, 4),
    "topk": (2, 65_536, 2),
    "iterations": (1, 1000, 1),
    "landscape_points": (2, 101, 2),
}
"""Of an option: what may stand there, and what is enough."""


@schemathesis.hook
def map_body(context, body):
    """Leave what is there, right or wrong; ask for little, and add what is needed and was left out."""
    path = context.operation.path
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or path not in SCENES:
        return body
    small = {name: few for name, (low, high, few) in SMALL.items() if _is_right(body.get(name), low, high)}
    if path == "/v1/plans":
        small = {name: few for name, (_, _, few) in SMALL.items() if name not in body} | small
        if "landscape_axes" not in body:
            small.pop("landscape_points")
    body = body | small | {"model": "vjepa2-ac"}
    scene = {name: tensor for name, tensor in SCENES[path].items() if name not in body}
    if "tensors" in body or "video" in body or "latents" in body or not scene:
        return body
    is_form = any(isinstance(value, bytes) for value in body.values())
    file = write_safetensors(scene)
    return body | {"tensors": file if is_form else base64.b64encode(file).decode()}


@schemathesis.hook
def map_headers(context, headers):
    """A time that is over before anything can be done makes a 504, which is right and proves nothing."""
    try:
        is_short = 0 < float(headers["x-timeout-s"]) < 30
    except (KeyError, TypeError, ValueError):
        return headers
    return {**headers, "x-timeout-s": "30"} if is_short else headers


def _is_right(value, low, high):
    return type(value) is int and low <= value <= high
