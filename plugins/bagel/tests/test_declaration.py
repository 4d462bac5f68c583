"""What a request is made of: its defaults, its sizes, the steps its track asks for. Nothing is computed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from by_hand import CASES, DATA

from walk_plugin_bagel import Bagel
from walk_plugin_bagel.preparing import prepared_sizes
from walk_plugin_bagel.prompts import THINK_THEN_PAINT, THINK_THEN_WRITE
from walkserve_sdk import Checkpoint, Fork, Outcome, Part, Request

GOLDEN = Checkpoint({"main": DATA / "golden"}, "golden")
SMALL = [name for name in CASES if not name.endswith("_real")]
IMAGE, TEXT = Part("image", b"a file"), Part("text", "a cat")


@pytest.fixture(scope="module")
def bagel() -> Bagel:
    return Bagel(GOLDEN)


def _steps(bagel: Bagel, request: Request, images: int) -> list[str]:
    """The Walks and forks that a request's track asks for, in order."""
    texts = 2 if request.options.think else 1
    texts += sum(part.kind == "text" for part in request.parts) - 1
    prepared = Outcome(
        {
            "blocks": [[1, 2, 3]] * texts,
            "for_vae": ["vae"] * images,
            "for_vit": ["vit"] * images,
            "vae_sizes": [[64, 48]] * images,
            "vit_sizes": [[56, 42]] * images,
        }
    )
    asked: list[str] = []
    track = Bagel.spec.tracks["answering"].function(bagel, request, prepared)
    step = next(track)
    while True:
        if isinstance(step, Fork):
            asked.append(f"{step.branch} > {step.to}")
        else:
            both = " on both" if step.inputs.get("apart") else ""
            asked.append(step.graph.name + both)
        try:
            step = track.send(Outcome({"text": "a plan", "ids": [1, 2]}, ended_by="times"))
        except StopIteration:
            return asked


def _asked(
    bagel: Bagel, *parts: Part, outputs: tuple[str, ...] = ("text", "image"), **options: Any
) -> list[str]:
    request = bagel.request(parts=parts, outputs=outputs, options=options)
    return _steps(bagel, request, sum(part.kind == "image" for part in parts))


def test_a_prompt_is_read_once_for_all_three_branches(bagel):
    assert _asked(bagel, TEXT) == ["main > no_text", "prefill_text", "main > no_image", "denoise"]


def test_of_a_picture_that_is_edited_the_texts_are_read_without_the_image_too(bagel):
    assert _asked(bagel, IMAGE, TEXT) == [
        "main > no_image",
        "prefill_vae",
        "prefill_vit",
        "main > no_text",
        "prefill_text on both",
        "denoise",
    ]


def test_texts_before_the_first_image_are_read_once(bagel):
    assert _asked(bagel, TEXT, IMAGE, TEXT) == [
        "prefill_text",
        "main > no_image",
        "prefill_vae",
        "prefill_vit",
        "main > no_text",
        "prefill_text on both",
        "denoise",
    ]


def test_an_image_at_the_end_is_in_what_the_text_guides_away_from(bagel):
    assert _asked(bagel, TEXT, IMAGE)[-4:] == ["prefill_vae", "prefill_vit", "main > no_text", "denoise"]


def test_what_was_thought_is_on_the_main_branch_only(bagel):
    assert _asked(bagel, TEXT, think=True) == [
        "prefill_text",
        "main > no_text",
        "prefill_text",
        "main > no_image",
        "main > scratch",
        "decode",
        "encode_thought",
        "prefill_text",
        "denoise",
    ]


def test_who_only_wants_text_never_touches_the_parts_that_paint(bagel):
    wants = {"outputs": ("text",)}
    assert _asked(bagel, IMAGE, TEXT, **wants) == ["prefill_vit", "prefill_text", "main > scratch", "decode"]
    assert _asked(bagel, TEXT, **wants) == ["prefill_text", "main > scratch", "decode"]
    assert _asked(bagel, TEXT, think=True, **wants) == [
        "prefill_text",
        "prefill_text",
        "main > scratch",
        "decode",
    ]


# --- sizes --------------------------------------------------------------------------------------------


def _prepared(case: Mapping[str, Any], bagel: Bagel, request: Request, tokenizer: Any) -> Outcome:
    """What the host would have said."""
    images = bagel.settings.images
    sizes = [
        prepared_sizes(tuple(one["size_wh"]), images) for one in case["inputs"] if one["type"] == "image"
    ]
    return Outcome(
        {
            "blocks": [tokenizer.block(text) for text in bagel.prepare(request).inputs["texts"]],
            "vae_sizes": [vae for vae, _ in sizes],
            "vit_sizes": [vit for _, vit in sizes],
        }
    )


@pytest.mark.parametrize("name", SMALL)
def test_the_tokens_that_are_reserved_are_those_the_reference_has(bagel, tokenizer, name):
    case = CASES[name]
    paints, think = "gen" in case, case["params"].get("think", False)
    parts = [
        Part("text", one["text"]) if one["type"] == "text" else Part("image", b"a file")
        for one in case["inputs"]
    ]
    options = {"think": think, "max_tokens": 23}
    outputs = ("text", "image") if paints else ("text",)
    request = bagel.request(parts=parts, outputs=outputs, options=options)
    start, more = bagel.budget(request, _prepared(case, bagel, request, tokenizer))[Bagel.llm]
    assert start == (case["gen"] if paints and not think else case["decode_start"])["kv_len"]
    assert more == ((3 * 23 + 2 if think else 0) if paints else 23)
    if paints and think:
        assert case["gen"]["kv_len"] <= start + more


def test_the_authors_words_come_first_where_the_model_is_to_think(bagel):
    for outputs, words in ((("text", "image"), THINK_THEN_PAINT), (("text",), THINK_THEN_WRITE)):
        request = bagel.request(parts=[TEXT], outputs=outputs, options={"think": True})
        assert bagel.prepare(request).inputs["texts"] == [words, "a cat"]


def test_the_authors_words_are_theirs_to_the_last_space(said):
    assert [row["text"] for row in said["tokenizer"][-2:]] == [THINK_THEN_PAINT, THINK_THEN_WRITE]


# --- options ------------------------------------------------------------------------------------------


def test_what_is_left_out_is_as_in_the_authors_application(bagel):
    painted = bagel.request(parts=[TEXT]).options
    assert (painted.cfg_text_scale, painted.cfg_img_scale, painted.cfg_interval) == (4.0, 1.5, (0.4, 1.0))
    assert (painted.cfg_renorm_type, painted.cfg_renorm_min) == ("global", 0.0)
    assert (painted.num_timesteps, painted.timestep_shift) == (50, 3.0)
    edited = bagel.request(parts=[IMAGE, TEXT]).options
    assert (edited.cfg_text_scale, edited.cfg_img_scale, edited.cfg_interval) == (4.0, 2.0, (0.0, 1.0))
    assert (edited.cfg_renorm_type, edited.cfg_renorm_min) == ("text_channel", 0.0)


def test_what_a_client_sets_is_what_holds(bagel):
    asked = {"cfg_img_scale": 1.0, "cfg_interval": [0.1, 0.2], "cfg_renorm_type": "channel", "size": "32x64"}
    options = bagel.request(parts=[IMAGE, TEXT], options=asked | {"size": None}).options
    assert (options.cfg_img_scale, options.cfg_interval) == (1.0, (0.1, 0.2))
    assert options.cfg_renorm_type == "channel"
    assert bagel.request(parts=[TEXT], options=asked).options.size == "32x64"


def test_a_picture_is_as_large_as_the_checkpoint_makes_images_or_as_was_asked():
    assert Bagel().request(parts=[TEXT]).options.size == "1024x1024"
    assert Bagel(GOLDEN).request(parts=[TEXT]).options.size == "128x128"
    assert Bagel(GOLDEN).context == 32_768


def test_declaring_it_brings_in_neither_torch_nor_anything_else_that_is_heavy():
    heavy = ("torch", "transformers", "diffusers", "numpy", "PIL", "tokenizers")
    program = f"import sys, walk_plugin_bagel; print(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.split() == []


def test_what_is_listed_without_importing_it_is_what_it_is():
    listed = json.loads((Path(__file__).parents[1] / "walkserve.json").read_text("utf-8"))["models"]["bagel"]
    assert tuple(listed["inputs"]) == Bagel.inputs
    assert set(listed["outputs"]) == set(Bagel.spec.outputs)
    assert tuple(listed["surfaces"]) == Bagel.surfaces()
