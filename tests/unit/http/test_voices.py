"""Who can speak."""

import pytest

pytestmark = pytest.mark.anyio
VOICES = "/v1/audio/voices"


async def test_voices_are_listed_by_model_and_the_default_is_marked(stage):
    async with stage.serving() as at:
        one = await at.client.get(VOICES, params={"model": "parrot"})
        assert one.json() == {
            "object": "list",
            "data": [
                {"object": "voice", "id": "polly", "model": "parrot:toy", "is_default": True},
                {"object": "voice", "id": "jack", "model": "parrot:toy", "is_default": False},
            ],
        }
        every = (await at.client.get(VOICES)).json()["data"]
        assert [(each["model"], each["id"]) for each in every] == [
            ("parrot:toy", "polly"),
            ("parrot:toy", "jack"),
            ("actor", "polly"),
            ("actor", "jack"),
        ]
        assert (await at.client.get(VOICES, params={"model": "choir"})).json()["data"] == []


async def test_a_model_that_is_not_there_or_does_not_speak_has_no_voices(stage):
    async with stage.serving() as at:
        missing = await at.client.get(VOICES, params={"model": "nobody"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        silent = await at.client.get(VOICES, params={"model": "painter:a"})
        assert (silent.status_code, silent.json()["error"]["code"]) == (400, "unsupported_surface")
        assert "makes image" in silent.json()["error"]["message"]
