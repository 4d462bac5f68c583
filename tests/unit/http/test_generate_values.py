"""Tensors and records by ``/v1/generate`` and ``/v1/stream``: dtype and shape are always told."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from walkserve import messages as m
from walkserve_sdk import Component, Model, Node, Output, Record, Request, Tensor, Track, WalkGraph, track
from walkserve_sdk.arrays import read_tensors, to_json
from walkserve_sdk.client import AsyncClient, Client
from walkserve_sdk.results import Fields

pytestmark = pytest.mark.anyio
GENERATE = "/v1/generate"
ACTIONS = np.array([[0.5, -1.0]], np.float32)
IDS = np.array([1, 2**40])


class Planner(Model):
    """Latents, a plan, and how it came about."""

    inputs = ("text", "tensor")
    desk = Component("nowhere:Desk")
    latents = Output(Tensor())
    plan = Output(Record())
    progress = Output(Record(), many=True)
    work = WalkGraph(
        Node(desk, "plan", takes="text", gives=("a", "b", "c"), to={"a": latents, "b": plan, "c": progress})
    )

    @track
    def planning(self, request: Request, prepared: Any) -> Track:
        yield self.work(text="")


def sent(array: np.ndarray) -> m.Array:
    return m.Array(array.dtype.name, array.shape, array.tobytes())


PLAN = m.Named(
    {
        "actions": sent(ACTIONS),
        "energy": 0.25,
        "steps": 3,
        "found": True,
        "note": "near",
        "nothing": None,
        "each": [sent(IDS), 7, "x"],
        "curve": [1.0, 0.5],
    }
)
PROGRESS = [m.Named({"best": 1.5}), m.Named({"best": float("inf"), "empty": sent(np.zeros((0, 2)))})]


def plans(mailbox: Any, submit: m.Submit) -> None:
    items = [("latents", [sent(ACTIONS.astype(np.float16))]), ("plan", [PLAN]), ("progress", PROGRESS)]
    for output, values in items:
        if output in submit.outputs:
            mailbox.say(m.Emitted(output, [submit.tag] * len(values), values))
    counts = {output: len(values) for output, values in items if output in submit.outputs}
    mailbox.say(m.RequestEnded(submit.tag, "stop", 7, counts, {}, {}))


def serving(stage: Any) -> Any:
    return stage.serving(plans, more={"planner": Planner()})


def ask(*outputs: str) -> dict[str, Any]:
    return {"model": "planner", "text": "go", **({"outputs": outputs} if outputs else {})}


async def test_a_record_has_its_numbers_and_the_dtype_and_shape_of_its_arrays(stage: Any) -> None:
    async with serving(stage) as at:
        response = await at.client.post(GENERATE, json=ask())
        started, *pieces, done = [json.loads(line) for line in response.text.splitlines()]
        assert started["outputs"] == {
            "latents": {"kind": "tensor"},
            "plan": {"kind": "record"},
            "progress": {"kind": "record", "many": True},
        }
        latents, plan, *progress = pieces
        assert (latents["dtype"], latents["shape"]) == ("float16", [1, 2])
        assert plan["record"] == {
            "actions": to_json(ACTIONS),
            "energy": 0.25,
            "steps": 3,
            "found": True,
            "note": "near",
            "nothing": None,
            "each": [to_json(IDS), 7, "x"],
            "curve": [1.0, 0.5],
        }
        assert [(one["index"], one["record"]) for one in progress] == [
            (0, {"best": 1.5}),
            (1, {"best": None, "empty": {"dtype": "float64", "shape": [0, 2], "data": ""}}),
        ]
        assert done["emitted"] == {"latents": 1, "plan": 1, "progress": 2}


def check(result: Any) -> None:
    assert isinstance(result.plan, Fields)
    assert (result.plan.actions.dtype, result.plan.actions.tolist()) == (np.float32, ACTIONS.tolist())
    assert (result.plan.energy, result.plan.note, result.plan.nothing) == (0.25, "near", None)
    assert [result.plan.each[0].tolist(), *result.plan.each[1:]] == [IDS.tolist(), 7, "x"]
    assert [one.best for one in result.progress] == [1.5, None]
    assert result.progress[1].empty.shape == (0, 2)
    assert (result.latents.dtype, result.latents.tolist()) == (np.float16, ACTIONS.tolist())
    result.plan.actions[0] = 0  # the caller's own


async def test_both_clients_have_records_with_attributes(stage: Any) -> None:
    async with serving(stage) as at:

        def act() -> None:
            with Client(at.server.url) as client:
                check(client.generate("planner", tensor={"states": ACTIONS}))

        await asyncio.to_thread(act)
        async with AsyncClient(at.server.url).connect() as session:
            check(await session.generate("planner", tensor={"states": ACTIONS}).result())
        for submit in at.mailbox.sent_of(m.Submit):
            (part,) = submit.parts
            assert read_tensors(part.data)["states"].tolist() == ACTIONS.tolist()


async def accepted(at: Any, accept: str, *outputs: str) -> Any:
    response = await at.client.post(GENERATE, json=ask(*outputs), headers={"accept": accept})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == accept
    return response


async def test_a_record_alone_is_json_and_of_an_output_that_has_many_a_list(stage: Any) -> None:
    async with serving(stage) as at:
        assert (await accepted(at, "application/json", "plan")).json()["actions"] == to_json(ACTIONS)
        assert (await accepted(at, "application/json", "progress")).json()[0] == {"best": 1.5}
        refused = await at.client.post(GENERATE, json=ask("plan"), headers={"accept": "application/x-npy"})
        assert refused.status_code == 406
        assert "application/json, application/x-safetensors" in refused.json()["error"]["message"]


async def test_all_outputs_are_one_safetensors_file(stage: Any) -> None:
    async with serving(stage) as at:
        data = (await accepted(at, "application/x-safetensors")).content
        read = read_tensors(data)
        assert {name: (one.dtype.name, one.tolist()) for name, one in read.items()} == {
            "latents": ("float16", ACTIONS.tolist()),
            "plan.actions": ("float32", ACTIONS.tolist()),
            "plan.energy": ("float64", 0.25),
            "plan.steps": ("int64", 3),
            "plan.found": ("bool", True),
            "plan.each.0": ("int64", IDS.tolist()),
            "plan.each.1": ("int64", 7),
            "plan.curve": ("float64", [1.0, 0.5]),
            "progress.0.best": ("float64", 1.5),
            "progress.1.best": ("float64", float("inf")),
            "progress.1.empty": ("float64", []),
        }
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        assert header["__metadata__"] == {"plan.note": "near", "plan.each.2": "x"}


@pytest.mark.parametrize(
    "value",
    [
        ACTIONS.tolist(),
        to_json(ACTIONS),
        {"dtype": "float32", "data": ACTIONS.tolist()},
    ],
)
async def test_numbers_may_stand_in_the_json_itself(stage: Any, value: Any) -> None:
    async with serving(stage) as at:
        inputs = [{"type": "tensor", "name": "states", "data": value}]
        response = await at.client.post(GENERATE, json={"model": "planner", "inputs": inputs})
        assert response.status_code == 200, response.text
        (part,) = at.mailbox.sent_of(m.Submit)[0].parts
        assert (part.kind, part.name) == ("tensor", "states")
        read = read_tensors(part.data, part.name)["states"]
        assert (read.dtype, read.tolist()) == (np.float32, ACTIONS.tolist())


async def test_numbers_that_are_no_tensor_are_refused_where_they_stand(stage: Any) -> None:
    async with serving(stage) as at:
        short = base64.b64encode(bytes(4)).decode()
        for value, told in (
            ([[1], [1, 2]], "inputs[0].data: the tensor 'states': it is no numbers in lists"),
            ({"dtype": "float32", "shape": [2], "data": short}, "of shape [2] has 8 bytes, and its data 4"),
            (None, "it is no numbers in lists"),
        ):
            inputs = [{"type": "tensor", "name": "states", "data": value}]
            response = await at.client.post(GENERATE, json={"model": "planner", "inputs": inputs})
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, "inputs[0].data")
            assert told in error["message"]


async def test_an_output_that_is_no_record_is_the_familys_fault(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(mailbox: Any, submit: m.Submit) -> None:
        mailbox.say(m.Emitted("plan", [submit.tag], [3]))

    async with stage.serving(wrong, more={"planner": Planner()}) as at:
        response = await at.client.post(GENERATE, json=ask("plan"))
        assert response.status_code == 500
    assert "planner: its output 'plan' is a int, not a record" in caplog.text


async def test_openapi_describes_records_as_they_are_sent(stage: Any) -> None:
    async with serving(stage) as at:
        openapi = (await at.client.get("/schema/openapi.json")).json()
        answers = openapi["paths"]["/v1/generate"]["post"]["responses"]["200"]["content"]
        schema = answers["application/x-ndjson"]["schema"]["contentSchema"]
        validator = jsonschema_rs.Draft202012Validator(schema)
        sent = [json.loads(line) for line in (await at.client.post(GENERATE, json=ask())).text.splitlines()]
        assert len(sent) == 6
        for event in sent:
            validator.validate(event)
        assert not validator.is_valid({**sent[2], "record": {"x": {"y": 1}}})
