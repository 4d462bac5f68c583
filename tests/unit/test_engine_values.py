"""Tensors and records into an Engine and out of it: dtypes stay, names arrive, and nothing stays lent."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.dot import DOT
from tests.families import surveyor

from walkserve import Engine
from walkserve_sdk import BadRequest, Part
from walkserve_sdk.results import Fields


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("site")
    surveyor.install(folder)
    with pytest.MonkeyPatch.context() as patch:
        for path in (folder, surveyor.HERE):
            patch.syspath_prepend(str(path))
        try:
            with Engine("surveyor", device="cpu") as opened:
                yield opened
        finally:
            sys.modules.pop("surveyor", None)


def gives_all_back(engine: Engine) -> bool:
    """Whether nothing of it is lent any more, soon: what frees a tensor is on its way for a moment."""
    until = time.monotonic() + 20
    while any(worker.carrier.held for worker in engine.workers) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(worker.carrier.held for worker in engine.workers)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_a_tensor_comes_back_in_the_dtype_it_had(engine: Engine, dtype: str) -> None:
    given = np.arange(6).reshape(2, 3).astype(dtype)
    result = engine.generate(tensor={"given": given}, outputs=["copy", "half"])
    assert (result.copy.dtype, result.copy.tolist()) == (given.dtype, given.tolist())
    result.copy[0] = 1  # the caller's own
    assert result.half.dtype == np.float32  # numpy has no bfloat16
    assert result.half.tolist() == given.astype(np.float32).tolist()


def test_a_record_has_attributes_and_whatever_a_value_may_be(engine: Engine) -> None:
    states = torch.ones(2, 7)
    parts = [Part("image", DOT, name="goal"), Part("text", "hi")]
    result = engine.generate(tensor={"states": states, "ids": np.array([1, 2**40])}, outputs=["survey"])
    survey = result.survey
    assert isinstance(survey, Fields)
    assert survey.count == survey["count"] == 2
    assert survey.dtypes == ["torch.float32", "torch.int64"]
    assert survey.nothing is None
    assert survey.field.tolist() == list(range(surveyor.LARGE))
    assert [one.tolist() for one in survey.each] == [states.tolist(), [1, 2**40]]
    with pytest.raises(AttributeError, match="the record has no 'cuont'; did you mean 'count'?"):
        _ = survey.cuont
    result = engine.generate(parts=parts, outputs=["survey"])
    assert result.survey.parts == [f"image[goal] {len(DOT)}", "text[] 2"]
    assert gives_all_back(engine)


def test_of_several_there_is_a_list_however_many_came_and_of_one_that_did_not_come_none(
    engine: Engine,
) -> None:
    for count in range(3):
        tensors = {f"t{n}": np.full(2, n, np.float32) for n in range(count)}
        result = engine.generate(tensor=tensors)
        assert [(step.sum, step.numbers.tolist()) for step in result.steps] == [
            (2.0 * n, [float(n)] * 2) for n in range(count)
        ]
        assert (result.copy is None) == (count == 0)


def test_pieces_come_as_they_are_given(engine: Engine) -> None:
    tensors = {"a": np.zeros(1), "b": np.ones(1)}
    with engine.stream(tensor=tensors, outputs=["steps", "copy"]) as pieces:
        got = [(piece.output, piece.data) for piece in pieces]
    assert [output for output, _ in got] == ["copy", "steps", "steps"]
    assert [data.sum for output, data in got if output == "steps"] == [0.0, 1.0]


def test_whoever_leaves_in_the_middle_leaves_nothing_lent(engine: Engine) -> None:
    with engine.stream(tensor=np.zeros(surveyor.LARGE)) as pieces:
        next(pieces)
    assert gives_all_back(engine)


def test_files_arrays_and_names_become_parts(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(DOT)
    result = engine.generate(
        text="hi", image={"now": file, "goal": DOT}, tensor=np.zeros(3), outputs="survey"
    )
    assert result.survey.parts[:3] == ["text[] 2", f"image[now] {len(DOT)}", f"image[goal] {len(DOT)}"]
    assert result.survey.dtypes == ["torch.float64"]
    with pytest.raises(BadRequest, match="image: an array of one is uint8"):
        engine.generate(image=np.zeros((2, 2)))
