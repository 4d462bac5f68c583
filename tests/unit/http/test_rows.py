"""What rows of a Fan give says whose it is, over every route, and the client joins it row by row."""

import json
from functools import partial

import numpy as np
import pytest
from tests.unit.http.test_client import array, using

from walkserve import messages as m

pytestmark = pytest.mark.anyio


@pytest.fixture
def stage(stage):
    """With a model that makes everything."""
    stage.serving = partial(stage.serving, more={"studio": stage.Studio()})
    return stage


ASK = {"model": "studio", "inputs": [{"type": "text", "text": "hi"}], "outputs": ["energy", "caption"]}


def gives_rows(mailbox, submit):
    """Two rows, whose items come in whatever order they were made in, and something that is of none."""
    tag = submit.tag
    mailbox.say(
        m.Admitted(tag),
        m.Emitted("energy", [tag, tag], [array([1.0, 1.5]), array([0.0, 0.5])], [1, 0]),
        m.Emitted("caption", [tag], ["zero"], [0]),
        m.Emitted("energy", [tag, tag], [array([0.25, 0.75]), array([2.0, 2.5])], [0, 1]),
        m.Emitted("caption", [tag], ["one"], [1]),
        m.RequestEnded(tag, "stop", 7, {"energy": 4, "caption": 2}, {}, {}),
    )


def told(events):
    pieces = [event for event in events if event["type"] == "output"]
    return [(piece["output"], piece["index"], piece["row"]) for piece in pieces]


PIECES = [
    ("energy", 0, 1),
    ("energy", 1, 0),
    ("caption", 0, 0),
    ("energy", 2, 0),
    ("energy", 3, 1),
    ("caption", 1, 1),
]


async def test_every_event_says_its_row(stage):
    async with stage.serving(gives_rows) as at:
        response = await at.client.post("/v1/generate", json=ASK)
        assert told(json.loads(line) for line in response.text.splitlines()) == PIECES
        response = await at.client.post("/v1/generate", json=ASK, headers={"accept": "text/event-stream"})
        data = [
            line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")
        ]
        assert told(json.loads(each) for each in data) == PIECES


async def test_the_client_joins_each_row_and_stacks_the_rows(stage):
    def act(client):
        return client.generate("studio", text="hi", outputs=["energy", "caption"])

    async with stage.serving(gives_rows) as at:
        result = await using(at, act)
        assert np.array_equal(result.energy, [[[0.0, 0.5], [0.25, 0.75]], [[1.0, 1.5], [2.0, 2.5]]])
        assert result.caption == ["zero", "one"]


async def test_what_is_streamed_has_its_index(stage):
    def act(client):
        with client.stream("studio", text="hi", outputs=["energy"]) as stream:
            return [event.index for event in stream]

    async with stage.serving(gives_rows) as at:
        assert await using(at, act) == [1, 0, 0, 1]
