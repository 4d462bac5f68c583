"""How many tokens a call brings into a cache, where that is not the length of what it takes."""

from typing import Any

import pytest

from walkserve_sdk import DeclarationError, causal, token_count
from walkserve_sdk.runtime import is_causal, token_count_of


class Part:
    extra = 2

    @token_count(lambda self, latent, **_: len(latent) + self.extra)
    def step(self, batch: Any) -> None: ...

    def plain(self, batch: Any) -> None: ...


def test_a_count_is_asked_with_the_component_and_what_the_call_takes() -> None:
    part = Part()
    count = token_count_of(part.step)
    assert count is not None and count(part, latent=[1, 2, 3], action=5) == 5
    assert token_count_of(part.plain) is None and not is_causal(part.step)


def test_a_method_whose_rows_are_split_cannot_count_its_tokens_itself() -> None:
    def step(self: Any, batch: Any) -> None: ...

    counted = token_count(lambda self, **_: 1)
    with pytest.raises(
        DeclarationError, match=r"step is both causal and has a token_count: rows of a causal"
    ):
        counted(causal(step))

    def other(self: Any, batch: Any) -> None: ...

    with pytest.raises(DeclarationError, match="other is both causal"):
        causal(counted(other))
