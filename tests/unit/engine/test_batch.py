"""A batch: what a method gives is dealt out to its rows, and nothing else is taken for it."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from walkserve.engine.batch import TorchBatch
from walkserve.engine.held import Held, hold
from walkserve.engine.rows import Row
from walkserve_sdk import Checkpoint, Component, ComponentError, SamplingParams, Stop


def batch_of(*gives: tuple[str, ...] | None, **options: Any) -> TorchBatch:
    """A batch of one row for each node that declares these."""
    held = Held("codec", Component("some.where:Codec"), torch.device("cpu"), torch.float32)
    rows = [
        Row({}, SimpleNamespace(state=None), SimpleNamespace(**options), (7, index), gives=names)
        for index, names in enumerate(gives)
    ]
    return TorchBatch(held, rows, tile=1, deterministic=False)


def test_every_row_gets_its_value_by_name():
    results = batch_of(("a", "b"), ("a", "b")).give({"a": [1, 2], "b": ["x", "y"]})
    assert [result.gives for result in results] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize(
    ("declared", "given", "there"),
    [
        (("pcm", "rate"), {"pmc": [1], "rate": [2]}, "['pmc', 'rate']"),
        (("pcm",), {"pcm": [1], "rate": [2]}, "['pcm', 'rate']"),
        (("pcm",), {}, "{}"),
        (("pcm",), None, "None"),
        (("pcm",), [1], "[1]"),
        ((), {"pcm": [1]}, "['pcm']"),
    ],
)
def test_other_names_than_the_node_declares_are_an_error_in_the_toy_runtimes_words(declared, given, there):
    with pytest.raises(ComponentError) as error:
        batch_of(declared).give(given)
    assert str(error.value) == f"codec: it must give {sorted(declared)}, but returned {there}"


def test_a_single_value_has_the_name_that_each_rows_node_has_for_it():
    """Guidance asks for one velocity on several branches, which a step then has to tell apart."""
    results = batch_of(("full",), ("no_text",)).give({"velocity": [1, 2]})
    assert [result.gives for result in results] == [{"full": 1}, {"no_text": 2}]


def test_fewer_values_than_rows_are_an_error():
    with pytest.raises(ComponentError, match="codec gave 1 values of 'pcm' for 2 rows"):
        batch_of(("pcm",), ("pcm",)).give({"pcm": [1]})


def test_a_node_that_gives_nothing_may_return_nothing():
    assert batch_of((), ()).give(None)[0].gives == {}


def test_a_row_that_is_stopped_may_lack_values():
    batch = batch_of(("pcm",))
    batch.stop(0, Stop("stop"))
    assert batch.give({})[0].gives == {}


def test_a_row_that_is_stopped_and_kept_may_not():
    batch = batch_of(("pcm",))
    batch.stop(0, Stop("stop", keep=True))
    with pytest.raises(ComponentError, match="it must give"):
        batch.give({})


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-40, 1e-6])
def test_a_temperature_near_zero_takes_the_likeliest_token(temperature):
    batch = batch_of(None, sampling=SamplingParams(temperature=temperature))
    assert batch.sample(torch.tensor([[1.0, 3.0, 2.9, -torch.inf]])) == [1]


class Half:
    @classmethod
    def load(cls, checkpoint, *, device, dtype):
        return cls()


class Whole(Half):
    dtype = torch.float32


@pytest.mark.parametrize(("kind", "words"), [("Half", "cpu, bfloat16"), ("Whole", "cpu, float32")])
def test_a_component_is_told_in_the_dtype_it_computes_in(kind, words, monkeypatch):
    component = Component(f"a_plugin_of_this_test:{kind}")
    monkeypatch.setitem(sys.modules, "a_plugin_of_this_test", SimpleNamespace(Half=Half, Whole=Whole))
    held = hold(
        component, set(), Checkpoint(), device=torch.device("cpu"), dtype=torch.bfloat16, pages=lambda *_: 1
    )
    assert held.in_words == words


def _drawn(ids: list[int], seen: Any = None) -> int:
    """What one greedy row draws that is given these ids; its best is 3, then 5, then 7."""
    held = Held("lm", Component("some.where:LM"), torch.device("cpu"), torch.float32)
    options = SimpleNamespace(sampling=SamplingParams(temperature=0, repetition_penalty=2.0))
    row = Row({"ids": ids}, SimpleNamespace(state=None, seen=seen), options, (7,), tokens=len(ids))
    logits = torch.zeros(1, 10)
    logits[0, [3, 5, 7]] = torch.tensor([3.0, 2.5, 2.0])
    return TorchBatch(held, [row], tile=1, deterministic=False).sample(logits, seen="ids")[0]


def test_the_penalty_counts_every_id_of_the_prompt_and_of_the_turns_before():
    assert _drawn([1, 2]) == 3
    assert _drawn([3, 1, 2]) == 5
    assert _drawn([3, 5, 2]) == 7
    assert _drawn([2], seen=torch.tensor([3, 5])) == 7
