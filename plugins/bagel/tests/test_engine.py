"""Whole requests through an Engine: what the reference gives for them, also beside each other."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from by_hand import CASES, DATA, paint, picture, read_inputs, write
from PIL import Image

from walkserve import Engine
from walkserve_sdk import BadRequest, Part

SMALL = [name for name in CASES if not name.endswith("_real")]  # those are of the published limits


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The golden checkpoint, batched equal to alone."""
    with Engine(f"bagel={DATA / 'golden'}", device="cpu", dtype="float32", deterministic=True) as engine:
        yield engine


def _parts(case: Mapping[str, Any]) -> list[Part]:
    return [
        Part("text", one["text"])
        if one["type"] == "text"
        else Part("image", (DATA / "images" / one["file"]).read_bytes())
        for one in case["inputs"]
    ]


def _asked(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case in a client's words; what it leaves out is as in the reference's inferencer."""
    params, options = case["params"], {"seed": case["seed"], "parts": _parts(case)}
    if "max_think_token_n" in params:
        options["max_tokens"] = params["max_think_token_n"] - 1  # the authors count the one it begins with
    options["think"] = params.get("think", False)
    if params.get("understanding_output"):
        return options | {"outputs": ("text",)}
    if not any(part.kind == "image" for part in options["parts"]):
        height, width = case["image_shape"]
        options["size"] = f"{width}x{height}"
    defaults = {
        "cfg_text_scale": 3.0,
        "cfg_img_scale": 1.5,
        "cfg_interval": [0.4, 1.0],
        "cfg_renorm_type": "global",
        "cfg_renorm_min": 0.0,
        "num_timesteps": 50,
        "timestep_shift": 3.0,
    }
    return options | {name: params.get(name, default) for name, default in defaults.items()}


def _pixels(result: Any) -> np.ndarray:
    (pixels,) = result.image if isinstance(result.image, list) else (result.image,)
    return pixels


def _apart(here: np.ndarray, there: np.ndarray) -> int:
    assert here.shape == there.shape
    return int(np.abs(here.astype(int) - there.astype(int)).max())


@pytest.mark.parametrize("name", [name for name in SMALL if "gen" not in CASES[name]])
def test_it_writes_what_the_reference_writes(engine, name):
    case = CASES[name]
    result = engine.generate(**_asked(case))
    assert result.text == case["outputs"][0]["text"]
    assert result.finish_reason == ("stop" if case["hit_eos"] else "length")
    assert result.usage["output_tokens"] == len(case["token_ids"]) - 1


@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith("t2i")])
def test_a_seed_gives_the_references_picture(engine, name):
    case = CASES[name]
    result = engine.generate(**_asked(case))
    assert _apart(_pixels(result), picture(f"{name}.png")) <= 1
    thought = case["outputs"][0]["text"] if case["params"].get("think") else ""
    assert result.text == thought


@pytest.mark.parametrize("name", ["edit_text_channel", "edit_think", "interleave"])
def test_pictures_of_images_are_those_put_together_by_hand_with_the_seeds_noise(engine, bench, name):
    """The recorded noise is none that a seed gives."""
    case = CASES[name]
    contexts = read_inputs(bench, case, recorded=False)
    if case["params"].get("think"):
        _, text, _ = write(bench, contexts, most=case["params"]["max_think_token_n"] - 1)
        contexts.thought(text)
    contexts.end()
    expected = paint(bench, contexts).picture
    contexts.drop()
    result = engine.generate(**_asked(case))
    assert _apart(_pixels(result), expected) <= 1
    assert _apart(_pixels(result), picture(f"{name}.png")) > 1


def test_mixed_requests_at_once_are_each_what_they_are_alone(engine):
    asked = [_asked(CASES[name]) for name in ("t2i_app_default", "edit_think", "i2t", "t2t", "interleave")]
    alone = [engine.generate(**each) for each in asked]
    running = [engine.stream(**each) for each in asked]
    for generation, expected in zip(running, alone, strict=True):
        pieces = list(generation)
        text = "".join(piece.data for piece in pieces if piece.output == "text")
        assert text == getattr(expected, "text", "")
        images = [piece.data for piece in pieces if piece.output == "image"]
        assert len(images) == ("image" in expected.outputs)
        for pixels in images:
            assert np.array_equal(pixels, _pixels(expected))


def test_another_seed_is_another_picture_and_the_same_seed_the_same(engine):
    asked = {"text": "A red fox", "outputs": ("image",), "size": "64x32", "num_timesteps": 4}
    one, other, again = (_pixels(engine.generate(seed=seed, **asked)) for seed in (1, 2, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.shape == (32, 64, 3)


def test_text_is_streamed_in_whole_characters_as_it_is_written(engine):
    case = CASES["t2t"]
    pieces = [piece.data for piece in engine.stream(**_asked(case))]
    assert len(pieces) > 10
    assert "".join(pieces) == case["outputs"][0]["text"]


# --- what is refused ----------------------------------------------------------------------------------

CAT = Part("text", "a cat")


def _png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("asked", "param", "told"),
    [
        ({"parts": []}, None, "send a text or an image"),
        ({"parts": [Part("text", "  ")]}, "text", "the text is empty"),
        ({"parts": [CAT], "size": "100x64"}, "size", "nearest to it: 96x64, 112x64"),
        ({"parts": [CAT], "size": "1040x64"}, "size", "nearest to it: 1024x64"),
        (
            {"parts": [Part("image", _png(64, 64)), CAT], "size": "64x64"},
            "size",
            "as large as the last of them; leave it out",
        ),
        ({"parts": [CAT], "cfg_interval": [0.9, 0.1]}, "cfg_interval", "ends before it begins"),
        ({"parts": [CAT], "cfg_renorm_type": "local"}, "cfg_renorm_type", "'local'"),
        ({"parts": [CAT], "num_timesteps": 1}, "num_timesteps", "num_timesteps"),
        ({"parts": [CAT, Part("image", b"no image")]}, None, "image 1"),
    ],
)
def test_what_cannot_be_served_is_refused_and_says_why(engine, asked, param, told):
    with pytest.raises(BadRequest, match=told) as refused:
        engine.generate(**asked)
    assert refused.value.status == 400
    assert param in (None, refused.value.param)


def test_what_does_not_fit_the_context_is_refused_before_anything_is_computed(engine):
    with pytest.raises(BadRequest, match="this is 120004 tokens of llm to begin with"):
        engine.generate(text="fox " * 60_000, outputs=("text",))
