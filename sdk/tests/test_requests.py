"""Options: what a client may set, and how it is told what it may not."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from walkserve_sdk import BadRequest, Options, Part, Request, SamplingParams
from walkserve_sdk.requests import SEED_LIMIT, fresh_seed, option_paths, read_options


@dataclass(frozen=True)
class Speaking(Options):
    voice: str = "tara"
    max_tokens: Annotated[int, Meta(ge=1)] = 1200
    sampling: SamplingParams = SamplingParams(temperature=0.6, top_p=0.8)
    stream: bool = False


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Two(Options):
    thinker: SamplingParams = SamplingParams()
    talker: SamplingParams = SamplingParams(temperature=0.9)


def refusal(options: type[Options], **given: Any) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        read_options(options, given)
    return refused.value


def test_what_a_client_leaves_out_is_the_familys_default() -> None:
    assert read_options(Speaking, {}) == Speaking()


def test_a_nested_field_is_set_by_its_own_name() -> None:
    read = read_options(Speaking, {"temperature": 0.2, "voice": "leo"})
    assert read == Speaking(voice="leo", sampling=SamplingParams(temperature=0.2, top_p=0.8))


def test_a_nested_field_is_set_by_its_dotted_name() -> None:
    assert read_options(Two, {"talker.top_k": 50}).talker == SamplingParams(temperature=0.9, top_k=50)


def test_a_name_that_two_nested_fields_share_needs_its_dotted_form() -> None:
    refused = refusal(Two, temperature=0.5)
    assert refused.param == "temperature"
    assert str(refused) == "unknown option 'temperature'; did you mean 'talker.temperature'?"


def test_no_option_is_set_twice() -> None:
    refused = refusal(Speaking, **{"temperature": 0.5, "sampling.temperature": 0.6})
    assert str(refused) == "temperature and sampling.temperature set the same option; send one of them"


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    refused = refusal(Speaking, voyce="leo")
    assert (str(refused), refused.param) == ("unknown option 'voyce'; did you mean 'voice'?", "voyce")


def test_an_unknown_option_near_to_nothing_is_refused_with_all_names() -> None:
    assert str(refusal(Speaking, zzz=1)).startswith("unknown option 'zzz'; known: max_tokens, ")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_tokens", 0, "max_tokens: expected `int` >= 1, got 0"),
        ("temperature", -0.5, "temperature: expected `float` >= 0.0, got -0.5"),
        ("top_p", 0, "top_p: expected `float` > 0.0, got 0"),
        ("sampling.top_k", -1, "sampling.top_k: expected `int` >= 0, got -1"),
        ("max_tokens", True, "max_tokens: expected `int`, got True"),
        ("max_tokens", 1.5, "max_tokens: expected `int`, got 1.5"),
        ("max_tokens", "12", "max_tokens: expected `int`, got '12'"),
        ("temperature", True, "temperature: expected `float`, got True"),
        ("stream", 1, "stream: expected `bool`, got 1"),
        ("voice", None, "voice: expected `str`, got None"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_name(name: str, value: Any, message: str) -> None:
    refused = refusal(Speaking, **{name: value})
    assert (str(refused), refused.param, refused.status) == (message, name, 400)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder", "x", "decoder: expected 'exact' or 'window', got 'x'"),
        ("decoder", 3, "decoder: expected 'exact' or 'window', got 3"),
        ("decoder", "a\nb", "decoder: expected 'exact' or 'window', got 'a\\nb'"),
        ("maybe", "c", "maybe: expected 'a' or 'b', got 'c'"),
        ("level", 3, "level: expected 1 or 2, got 3"),
        ("marks", [1, "a"], "marks[1]: expected `int`, got [1, 'a']"),
        ("decoder", "x" * 999, f"decoder: expected 'exact' or 'window', got '{'x' * 98}…"),
        ("size", 2**64, "size: a whole number has at most 64 bits, got 18446744073709551616"),
        ("size", -(2**63) - 1, "size: a whole number has at most 64 bits, got -9223372036854775809"),
    ],
)
def test_what_may_stand_there_is_said_once(name: str, value: Any, message: str) -> None:
    @dataclass(frozen=True)
    class Several(Options):
        decoder: Literal["exact", "window"] = "exact"
        maybe: Literal["a", "b"] | None = None
        level: Level = Level.LOW
        marks: list[int] = field(default_factory=list)
        size: int = 0

    assert str(refusal(Several, **{name: value})) == message


def test_a_number_that_python_does_not_write_is_refused_all_the_same() -> None:
    assert "max_tokens: a whole number has at most 64 bits" in str(refusal(Speaking, max_tokens=10**5000))


def test_the_fields_of_sampling_are_not_sent_as_an_object() -> None:
    refused = refusal(Speaking, sampling={"temperature": 1})
    assert refused.param == "sampling"
    assert str(refused) == (
        "sampling: send its fields flat: temperature, top_k, top_p, min_p, repetition_penalty"
    )
    assert str(refusal(Two, talker={})).startswith("talker: send its fields flat: talker.temperature, ")


def test_every_option_is_listed_once() -> None:
    assert str(refusal(Speaking, zzz=1)) == (
        "unknown option 'zzz'; known: max_tokens, min_p, repetition_penalty, seed, stream, temperature, "
        "top_k, top_p, voice"
    )
    assert str(refusal(Speaking, **{"sampling.top_o": 1})).endswith("did you mean 'sampling.top_p'?")


@pytest.mark.parametrize(
    ("name", "value"), [("repetition_penalty", 1e-40), ("repetition_penalty", 101), ("top_k", 2**31)]
)
def test_sampling_stays_where_its_arithmetic_holds(name: str, value: float) -> None:
    assert refusal(Speaking, **{name: value}).param == name


def test_a_whole_number_is_good_enough_for_a_fraction() -> None:
    read = read_options(Speaking, {"temperature": 1})
    assert read.sampling.temperature == 1.0 and isinstance(read.sampling.temperature, float)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, None])
def test_a_seed_has_63_bits(seed: int | None) -> None:
    assert read_options(Speaking, {"seed": seed}).seed == seed


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64, 1.0, True])
def test_any_other_seed_is_refused(seed: Any) -> None:
    assert refusal(Speaking, seed=seed).param == "seed"


def test_what_a_familys_own_check_says_reaches_the_client() -> None:
    @dataclass(frozen=True)
    class Paired(Options):
        low: int = 0
        high: int = 9

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low={self.low} is above high={self.high}")

    assert str(refusal(Paired, low=10)) == "low=10 is above high=9"


def test_every_option_can_be_named() -> None:
    assert option_paths(Two)["talker.top_k"] == ("talker", "top_k")
    assert "top_k" not in option_paths(Two)
    assert option_paths(Speaking)["top_k"] == ("sampling", "top_k")


def test_a_drawn_seed_is_in_range() -> None:
    assert all(0 <= fresh_seed() < SEED_LIMIT for _ in range(50))


def test_one_part_of_a_kind_is_one() -> None:
    request = Request(
        (Part("text", "a"), Part("image", b"1"), Part("image", b"2")), ("speech",), Options(), 0
    )
    assert request.one("text") == "a"
    assert request.all("image") == (b"1", b"2")
    with pytest.raises(BadRequest, match="exactly one image is needed, 2 were given"):
        request.one("image")
    with pytest.raises(BadRequest, match="exactly one audio is needed, 0 were given"):
        request.one("audio")


def test_a_part_is_found_by_its_kind_and_by_its_name() -> None:
    parts = (Part("image", b"now"), Part("image", b"then", name="goal"), Part("text", "hi", name="goal"))
    request = Request(parts, ("plan",), None, 0)
    assert request.all("image") == (b"now", b"then")
    assert request.one("image", "goal") == b"then"
    assert request.one("image", "") == b"now"
    assert request.one("text") == "hi"
    with pytest.raises(BadRequest) as refused:
        request.one("image", "past")
    assert str(refused.value) == "exactly one image named 'past' is needed, 0 were given"
    with pytest.raises(BadRequest, match=r"^exactly one image is needed, 2 were given$"):
        request.one("image")
