"""The OpenAPI description tells the truth of bodies, answers and errors; its page loads nothing."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Annotated

import jsonschema_rs
import pytest
from msgspec import Meta

from walkserve.http.keys import ApiKeys
from walkserve.http.speech_docs import speech_operation

pytestmark = pytest.mark.anyio


@pytest.fixture
async def schema(stage):
    async with stage.serving() as at:
        return (await at.client.get("/schema/openapi.json")).json()


def operations(schema):
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


async def test_speech_has_its_fields_examples_and_errors(schema):
    speech = schema["paths"]["/v1/audio/speech"]["post"]
    assert {"200", "400", "404", "413", "415", "500", "503"} <= set(speech["responses"])
    body = speech["requestBody"]["content"]["application/json"]
    assert body["schema"]["required"] == ["model", "input"]
    assert body["examples"]["whole"]["value"]["input"]


async def test_the_body_of_speech_names_the_options_of_what_speaks_here_and_no_others(schema):
    body = schema["paths"]["/v1/audio/speech"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["additionalProperties"] is False
    assert {"max_tokens", "seed", "temperature", "sampling.temperature"} <= set(body["properties"])
    assert (body["properties"]["max_tokens"]["minimum"], body["properties"]["max_tokens"]["default"]) == (
        1,
        10,
    )
    assert "`polly`, `jack`" in body["properties"]["voice"]["description"]
    assert body["properties"]["instructions"]["type"] == ["string", "null"]  # the actor takes them


async def test_models_that_differ_in_an_option_are_told_apart_and_what_none_takes_is_null(stage):
    class Shrill(stage.Parrot):
        """Says things, colder."""

        @dataclass(frozen=True)
        class Options(stage.Parrot.Options):
            max_tokens: Annotated[int, Meta(ge=5)] = 5

    operation = speech_operation({"parrot": stage.Parrot(), "shrill": Shrill()})(responses={})
    body = operation.request_body.content["application/json"].schema.to_schema()
    assert [one["minimum"] for one in body["properties"]["max_tokens"]["anyOf"]] == [1, 5]
    assert body["properties"]["instructions"]["type"] == "null"
    assert body["properties"]["speed"]["enum"] == [1, None]


async def test_keys_are_told_where_there_are_keys(stage):
    async with stage.serving(keys=ApiKeys.of(["sesame"])) as at:
        bearer = {"authorization": "Bearer sesame"}
        told = (await at.client.get("/schema/openapi.json", headers=bearer)).json()
        assert told["components"]["securitySchemes"]["api_key"]["scheme"] == "bearer"
        assert told["security"] == [{"api_key": []}]
        assert told["paths"]["/health"]["get"]["security"] == [{}]
        assert "401" in told["paths"]["/v1/models"]["get"]["responses"]


async def test_every_error_is_the_envelope(schema):
    for name, operation in operations(schema):
        for status, response in operation["responses"].items():
            if status < "400" or (name, status) == ("GET /ready", "503"):
                continue
            (media,) = response["content"].values()
            assert media["schema"] == {"$ref": "#/components/schemas/ProblemBody"}, (name, status)
    problem = schema["components"]["schemas"]["Problem"]
    assert set(problem["properties"]) == {"message", "type", "param", "code"}


async def test_every_route_and_every_answer_has_a_summary_and_an_example(schema):
    for name, operation in operations(schema):
        assert operation["summary"], name
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            kinds = response.get("content", {})
            is_sound = any(kind.startswith(("audio/", "application/octet")) for kind in kinds)
            assert is_sound or any(media.get("examples") for media in kinds.values()), (name, status)
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], name


async def test_every_example_is_as_its_schema_says(schema):
    tried = 0
    for name, operation in operations(schema):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for kind, media in (pair for body in bodies for pair in body.get("content", {}).items()):
            if not kind.startswith("application/json"):
                continue
            whole = media["schema"] | {"components": schema["components"]}
            for example in media.get("examples", {}).values():
                validator = jsonschema_rs.Draft202012Validator(whole)
                wrong = [error.message for error in validator.iter_errors(example["value"])]
                assert wrong == [], (name, kind, wrong)
                tried += 1
    assert tried > 20


async def test_the_page_shows_every_route_and_loads_nothing(stage, schema):
    async with stage.serving() as at:
        response = await at.client.get("/schema")
        assert response.headers["content-type"].startswith("text/html")
        page = response.text
    for name, _ in operations(schema):
        method, path = name.split()
        assert f"<code>{method}</code><code>{path}</code>" in page
    assert not re.search(r"<script|<link|<img|@import|url\(|src=", page)
    links = re.findall(r'href="([^"]+)"', page)
    assert all(link == "/schema/openapi.json" or link.startswith("#") for link in links)
    for link in links:
        assert link.startswith("/") or f'id="{link[1:]}"' in page


async def test_the_page_is_well_formed(stage):
    class Balance(HTMLParser):
        open: tuple[str, ...] = ()

        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                self.open = (*self.open, tag)

        def handle_endtag(self, tag):
            assert self.open[-1] == tag, (self.open, self.getpos())
            self.open = self.open[:-1]

    async with stage.serving() as at:
        balance = Balance()
        balance.feed((await at.client.get("/schema")).text)
    assert balance.open == ()
