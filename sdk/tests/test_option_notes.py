"""What is told of options is what they are checked by, in the words of whoever declared them."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from walkserve_sdk import BadRequest, Options, SamplingParams
from walkserve_sdk.option_notes import described_args, option_notes
from walkserve_sdk.requests import read_options


@dataclass(frozen=True)
class Talker:
    """How the talker draws.

    Args:
        heat: Of the talker alone.
        top_p: Its own nucleus.
    """

    heat: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 0.5


@dataclass(frozen=True)
class Full(Options):
    """Everything at once.

    Args:
        steps: How many
            there are: at least one.
        low, high: Bounds.

    Raises:
        steps: is no option here.
    """

    steps: Annotated[int, Meta(ge=1, multiple_of=2)] = 4
    low: Annotated[float, Meta(gt=0)] = 0.5
    high: Annotated[float, Meta(lt=10)] | None = None
    mode: Literal["a", "b"] = "a"
    name: Annotated[str, Meta(min_length=1, max_length=9)] = "x"
    words: Annotated[tuple[str, ...], Meta(max_length=3)] = ()
    span: tuple[float, float] | None = None
    free: Any = field(default=None)
    sampling: SamplingParams = SamplingParams(top_k=7)
    talker: Talker = Talker()


NOTES = {note.name: note for note in option_notes(Full)}


@pytest.mark.parametrize(
    ("name", "kind", "default", "allowed"),
    [
        ("steps", "whole number", 4, "from 1"),
        ("low", "number", 0.5, "above 0"),
        ("high", "number", None, "below 10"),
        ("mode", "one of", "a", '"a" or "b"'),
        ("name", "text", "x", "1 to 9 characters"),
        ("words", "array", (), "up to 3 items"),
        ("span", "array", None, "2 items"),
        ("free", "anything", None, ""),
        ("top_k", "whole number", 7, "0 to 2³¹ − 1"),
        ("min_p", "number", 0.0, "from 0, below 1"),
        ("seed", "whole number", None, "0 to 2⁶³ − 1"),
    ],
)
def test_type_default_and_range_are_read_from_the_declaration(name, kind, default, allowed):
    note = NOTES[name]
    assert (note.type, note.default, note.range) == (kind, default, allowed)


def test_an_option_is_told_once_by_the_shortest_name_it_may_be_set_by():
    assert NOTES["temperature"].also == "sampling.temperature"
    assert NOTES["heat"].also == "talker.heat"
    assert "top_p" not in NOTES  # two have it, so only their long names are known
    assert {"sampling.top_p", "talker.top_p"} <= set(NOTES)
    for name in NOTES:
        try:
            read_options(Full, {name: object()})
        except BadRequest as refused:
            assert "unknown" not in str(refused)


def test_words_are_those_of_the_class_that_declares_the_field():
    assert NOTES["steps"].about == "How many there are: at least one."
    assert NOTES["low"].about == NOTES["high"].about == "Bounds."
    assert NOTES["talker.top_p"].about == "Its own nucleus."
    assert NOTES["sampling.top_p"].about.startswith("Keep the smallest set of tokens")
    assert NOTES["seed"].about.startswith("Decides every random draw")
    assert NOTES["mode"].about == ""


def test_a_familys_own_options_come_first():
    assert next(iter(NOTES)) == "steps"
    assert list(NOTES)[-1] == "seed"


def test_what_is_said_to_be_allowed_is_what_is_allowed():
    for name, value in (("steps", 0), ("low", 0), ("high", 10), ("mode", "c"), ("name", ""), ("min_p", 1)):
        with pytest.raises(BadRequest):
            read_options(Full, {name: value})
    for name, value in (
        ("steps", 2),
        ("low", 0.1),
        ("high", 9.9),
        ("mode", "b"),
        ("name", "y"),
        ("min_p", 0),
    ):
        read_options(Full, {name: value})


def test_a_docstring_without_arguments_says_nothing():
    assert described_args("") == described_args("Only this.") == {}
    assert described_args("This.\n\nArgs:\n    a: One.\n\n    b: Two,\n        and more.\n") == {
        "a": "One.",
        "b": "Two, and more.",
    }
