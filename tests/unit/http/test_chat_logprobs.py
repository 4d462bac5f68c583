"""What is told of tokens goes out with the text they stand in."""

from __future__ import annotations

import numpy as np
import pytest

from walkserve.http.chat_logprobs import Tokens
from walkserve_sdk.errors import ComponentError


def record(data: bytes, *top: bytes) -> dict:
    return {
        "token": np.frombuffer(data, np.uint8),
        "logprob": -0.5,
        "top": [np.frombuffer(each, np.uint8) for each in top],
        "top_logprobs": [-0.1 * number for number in range(1, len(top) + 1)],
    }


def told(tokens: Tokens, **how) -> list[bytes]:
    return [bytes(each.bytes) for each in tokens.take(**how)]


def test_a_token_waits_for_the_text_in_which_it_begins():
    tokens = Tokens(0)
    tokens.came(record(b"ab"))
    tokens.came(record(b"cd"))
    assert told(tokens) == []
    tokens.sent("abc")
    assert told(tokens) == [b"ab", b"cd"]


def test_of_a_character_in_two_tokens_both_are_told_and_each_has_its_bytes():
    tokens = Tokens(0)
    first, second = "ü".encode()[:1], "ü".encode()[1:]
    tokens.came(record(first))
    tokens.came(record(second))
    tokens.sent("ü")
    one, two = tokens.take()
    assert (one.bytes, two.bytes) == (list(first), list(second))
    assert one.token == two.token == "\ufffd"


def test_what_the_text_never_reached_is_told_only_where_it_has_ended_by_itself():
    for all, expected in ((False, []), (True, [b"cd", b""])):
        tokens = Tokens(0)
        for each in (b"ab", b"cd", b""):
            tokens.came(record(each))
        tokens.sent("ab")
        assert told(tokens) == [b"ab"]
        assert told(tokens, all=all) == expected


def test_it_is_known_whether_a_token_of_the_text_is_still_to_come():
    tokens = Tokens(0)
    tokens.sent("ab")
    assert not tokens.are_enough
    tokens.came(record(b"ab"))
    assert tokens.are_enough and tokens.count == 1


def test_as_many_likely_ones_are_told_as_were_asked_for():
    tokens = Tokens(1)
    tokens.came(record(b"a", b"b", b"a"))
    tokens.sent("a")
    ((top,),) = (each.top_logprobs for each in tokens.take())
    assert (top.token, top.logprob) == ("b", -0.1)


@pytest.mark.parametrize(
    "wrong", ["text", {"token": np.zeros(1, np.uint8)}, record(b"a") | {"top_logprobs": [1.0]}]
)
def test_a_record_of_another_kind_is_the_familys_mistake(wrong):
    with pytest.raises(ComponentError, match="token_scores"):
        Tokens(0).came(wrong)
