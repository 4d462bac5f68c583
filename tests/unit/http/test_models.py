"""``/v1/models``: what a client may ask of each model, and within which limits."""

import pytest

from walkserve import messages as m
from walkserve.descriptions import ROUTES
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve_sdk.surfaces import SURFACES

pytestmark = pytest.mark.anyio


async def card(at, name: str) -> dict:
    return (await at.client.get(f"/v1/models/{name}")).json()


async def test_a_card_says_what_a_model_takes_makes_and_offers(stage):
    async with stage.serving() as at:
        parrot = await card(at, "parrot:toy")
        assert parrot["summary"] == "Says things"
        assert parrot["family"] == "parrot"
        assert parrot["inputs"] == ["text"]
        assert parrot["outputs"] == {"speech": {"kind": "audio", "rate": 8000, "channels": 1}}
        assert "POST /v1/audio/speech" in parrot["surfaces"]["audio.speech"]
        painter = await card(at, "painter:a")
        assert painter["outputs"] == {"image": {"kind": "image"}}
        assert "audio.speech" not in painter["surfaces"]
        assert painter["voices"] == []


async def test_options_are_json_schema_with_their_defaults(stage):
    async with stage.serving() as at:
        options = (await card(at, "parrot:toy"))["options"]
        assert options["max_tokens"] == {"description": "", "type": "integer", "default": 10, "minimum": 1}
        assert options["top_p"]["also"] == "sampling.top_p"
        assert (options["top_p"]["exclusiveMinimum"], options["top_p"]["maximum"]) == (0, 1)
        assert options["seed"]["maximum"] == 2**63 - 1
        assert "default" not in options["seed"]
        assert set(options) == {
            "voice", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"
        }  # fmt: skip


async def test_limits_are_those_that_the_workers_have_told(stage):
    async with stage.serving(body_bytes=4096) as at:
        assert (await card(at, "parrot:toy"))["limits"] == {
            "body_bytes": 4096,
            "tokens": {"speaker": {"request": 128, "pool": 144}},
        }
        assert (await card(at, "actor"))["limits"]["tokens"] == {}
    async with stage.serving(state=m.ServerState("starting", "", 55, ())) as at:
        assert (await card(at, "parrot:toy"))["limits"]["tokens"] == {}


def test_the_routes_of_surfaces_are_routes_of_the_application_and_every_surface_has_one():
    class NoPost:
        def send(self, to, messages): ...

        async def receive(self):
            return []

        def forget(self, to): ...

    app = create_app(Caller(NoPost()), {})
    there = {
        f"{method} {route.path}"
        for route in app.routes
        for method in (getattr(route, "methods", None) or {"WS"})
    }
    assert set(ROUTES) == set(SURFACES)
    for routes in ROUTES.values():
        assert routes
        assert set(routes) <= there
