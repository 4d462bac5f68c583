"""The toy paints what it is asked for and says what it is shown, many requests at once; a judge counts that
knows no model. All seeds were chosen before the first run."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from walk_plugin_bagel.toy.drawings import COLOURS, WORDS, digits, drawn
from walk_plugin_bagel.toy.judge import Judge
from walk_plugin_bagel.toy.score import PAINTING, Asked, prompts, unseen
from walkserve import Engine
from walkserve_sdk import Part

SEED = 2026
Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("bagel:toy", device="cpu", dtype="float32") as engine:
        yield engine


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(len(digits().images))


def png(picture: Picture) -> Part:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return Part("image", file.getvalue())


def paint(engine: Engine, asked: Sequence[Asked]) -> list[Picture]:
    """All at once; the seed of a picture is its number."""
    running = [
        engine.stream(text=each.text, outputs=("image",), seed=seed, **PAINTING)
        for seed, each in enumerate(asked)
    ]
    return [next(piece.data for piece in generation if piece.output == "image") for generation in running]


def tell(engine: Engine, pictures: Sequence[Picture], question: str) -> list[str]:
    """All at once."""
    running = [
        engine.stream(parts=[png(picture), Part("text", question)], outputs=("text",), max_tokens=12)
        for picture in pictures
    ]
    return ["".join(piece.data for piece in generation) for generation in running]


def right(judge: Judge, painted: Sequence[Picture], asked: Sequence[Asked]) -> tuple[float, float]:
    """The shares of right digits and of right colours."""
    pairs = list(zip(painted, asked, strict=True))
    digit = np.mean([judge.digit(picture) == each.digit for picture, each in pairs])
    colour = np.mean([judge.colour(picture) == each.colour for picture, each in pairs])
    return float(digit), float(colour)


def described(engine: Engine, count: int) -> float:
    """The share of right descriptions."""
    shown = unseen(count, SEED)
    told = tell(engine, [picture for picture, _ in shown], "Describe the image.")
    return float(np.mean([text == each.text for text, (_, each) in zip(told, shown, strict=True)]))


def test_a_dozen_pictures_show_what_was_asked_for(engine, judge):
    asked = prompts(12, SEED)
    digit, colour = right(judge, paint(engine, asked), asked)
    assert digit >= 0.85
    assert colour >= 0.95


def test_eight_digits_that_it_never_saw_are_described(engine):
    assert described(engine, 8) >= 0.85


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_120_pictures_at_once_show_what_was_asked_for(engine, judge):
    asked = prompts(120, SEED)
    digit, colour = right(judge, paint(engine, asked), asked)
    assert digit >= 0.85
    assert colour >= 0.95


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sixty_digits_that_it_never_saw_are_described(engine):
    assert described(engine, 60) >= 0.9


def test_each_question_has_its_answer(engine):
    picture = drawn(digits().images[1700], "blue")
    assert digits().labels[1700] == 5
    questions = ("What digit is this?", "What color is it?", "Describe the image.")
    assert [tell(engine, [picture], each)[0] for each in questions] == ["five", "blue", "a blue five"]


def test_what_it_painted_it_can_describe(engine):
    asked = prompts(10, SEED + 1)
    told = tell(engine, paint(engine, asked), "Describe the image.")
    expected = [f"a {each.colour} {WORDS[each.digit]}" for each in asked]
    assert sum(map(str.__eq__, told, expected)) >= 9


def test_pictures_are_made_of_pictures_and_texts_in_any_order(engine):
    """It never learned to edit: what comes out is a picture as large as the last one that was sent, and no
    noise."""
    five, two = drawn(digits().images[1700], "blue"), drawn(digits().images[1501], "red")
    for parts in (
        [png(five), Part("text", "draw the digit 5 in red")],
        [png(five), Part("text", "a red two"), png(two), Part("text", "a green three")],
    ):
        asked: dict[str, Any] = {"parts": parts, "outputs": ("image",), "num_timesteps": 12}
        once, again, other = (engine.generate(seed=seed, **asked).image for seed in (1, 1, 2))
        assert once.shape == (32, 32, 3)
        assert np.array_equal(once, again)
        assert not np.array_equal(once, other)
        assert _roughness(once) < 60  # between neighbours; noise has 85


def _roughness(picture: Picture) -> float:
    return float(np.abs(np.diff(picture.astype(int), axis=0)).mean())


def test_colours_are_what_the_judge_knows(judge):
    assert list(COLOURS) == ["red", "green", "blue", "white"]
    for name in COLOURS:
        assert judge.colour(drawn(digits().images[0], name)) == name
