"""Tensors and records through a real server: files in, dtypes as they were, and nothing stays lent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from tests.dot import DOT
from tests.families import surveyor
from tests.system.conftest import RunningServer

from walkserve_sdk import Part
from walkserve_sdk.arrays import read_tensors, write_npy
from walkserve_sdk.client import AsyncClient, Client

STATES = np.arange(14, dtype=np.float64).reshape(2, 7)
IDS = np.array([1, 2**40])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("surveyor")
    environ = {"PYTHONPATH": surveyor.install(folder / "site")}
    started = RunningServer("surveyor", "--port", "0", log=folder / "log", environ=environ)
    try:
        yield started.wait_until_ready()
    finally:
        code = started.stop()
    assert code == 0, started.printed


def check(result) -> None:
    assert (result.copy.dtype, result.copy.tolist()) == (np.float64, STATES.tolist())
    assert result.half.dtype == np.float32
    assert result.survey.dtypes == ["torch.float64", "torch.int64"]
    assert result.survey.field.tolist() == list(range(surveyor.LARGE))
    assert [one.dtype for one in result.survey.each] == [np.float64, np.int64]
    assert [step.sum for step in result.steps] == [STATES.sum(), IDS.sum()]


def test_the_client_sends_arrays_and_has_arrays_and_records(server):
    with Client(server.url) as client:
        check(client.generate("surveyor", tensor={"states": STATES, "ids": IDS}))
        parts = [
            Part("image", DOT, name="goal"),
            Part("tensor", write_npy(IDS), name="ids"),
            Part("text", "hi"),
        ]
        result = client.generate("surveyor", inputs=parts, outputs=["survey"])
        assert [part.partition(" ")[0] for part in result.survey.parts] == [
            "image[goal]",
            "tensor[ids]",
            "text[]",
        ]


def test_a_socket_does_the_same(server):
    async def over_a_socket():
        async with AsyncClient(server.url).connect() as session:
            asked = (session.generate("surveyor", tensor={"states": STATES, "ids": IDS}) for _ in range(3))
            return await asyncio.gather(*(one.result() for one in asked))

    for result in asyncio.run(over_a_socket()):
        check(result)


def test_a_form_with_names_is_answered_by_one_file(server):
    form = {
        "model": (None, "surveyor"),
        "tensor[states]": ("states.npy", write_npy(STATES)),
        "image[goal]": ("a.png", DOT),
    }
    accept = {"accept": "application/x-safetensors"}
    answer = httpx.post(f"{server.url}/v1/generate", files=form, headers=accept, timeout=60)
    assert answer.status_code == 200, answer.text
    read = read_tensors(answer.content)
    assert (read["copy"].dtype, read["copy"].tolist()) == (np.float64, STATES.tolist())
    assert read["survey.field"].shape == (surveyor.LARGE,)
    assert read["steps.0.numbers"].tolist() == STATES.tolist()
    length = int.from_bytes(answer.content[:8], "little")
    told = json.loads(answer.content[8 : 8 + length])["__metadata__"]
    assert told["survey.parts.1"] == f"image[goal] {len(DOT)}"


def test_a_file_that_is_no_tensor_fails_its_own_request(server):
    with Client(server.url) as client:
        with pytest.raises(Exception, match="neither of a .safetensors nor of a .npy file") as failed:
            client.generate("surveyor", tensor=b"hello, this is no tensor")
        assert failed.value.status == 400
        check(client.generate("surveyor", tensor={"states": STATES, "ids": IDS}))
