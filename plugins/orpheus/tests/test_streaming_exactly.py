"""Sound that leaves in pieces is the sound of one decode of all frames, and leaves early."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from walk_plugin_orpheus.ids import read_speech_ids
from walk_plugin_orpheus.snac_stream import frames_to_codes, load_snac

ASKED = {"text": "say something", "voice": "leo", "codec_noise": False, "constrain": True, "seed": 4}


@pytest.fixture(scope="module")
def decode_whole(engine):
    """The snac package's own decode of all frames at once."""
    checkpoint = engine.config.checkpoint
    ids, snac = read_speech_ids(checkpoint), load_snac(checkpoint.folder("snac"))
    for block in snac.modules():
        if type(block).__name__ == "NoiseBlock":
            block.forward = lambda x: x

    def decode(tokens: list[int]) -> np.ndarray:
        frames = torch.tensor(tokens[: len(tokens) // 7 * 7]).reshape(-1, 7)
        frames = frames - ids.first - ids.codebook_size * torch.arange(7)
        with torch.inference_mode():
            return snac.decode(frames_to_codes(frames[None])).flatten().numpy()

    return decode


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 7, 8, 9, 23, 60])
def test_every_frame_is_spoken_however_many_there_are(engine, tap, decode_whole, frames):
    pieces = [event.data.samples for event in engine.stream(**ASKED, max_tokens=7 * frames)]
    streamed = np.concatenate(pieces)
    assert len(tap.last) == 7 * frames
    assert streamed.shape == (2048 * frames,)
    assert np.abs(streamed - decode_whole(tap.last)).max() <= 1e-4


@pytest.mark.parametrize("frames", [1, 3, 20])
def test_noise_does_not_depend_on_how_frames_arrive(engine, frames):
    """Twice the same seed: helpings differ with the machine's mood, samples do not."""
    asked = ASKED | {"codec_noise": True, "max_tokens": 7 * frames}
    first, second = (engine.generate(**asked).speech.samples for _ in range(2))
    assert np.abs(first - second).max() <= 1e-4
    silent = engine.generate(**asked | {"codec_noise": False}).speech.samples
    assert np.abs(first - silent).max() > 1e-3


def test_tokens_of_an_unfinished_frame_are_counted(engine):
    result = engine.generate(**ASKED, max_tokens=7 * 3 + 2)
    assert result.speech.samples.shape == (3 * 2048,)
    assert result.counts == {"frames": 3, "dropped_tokens": 2}
    assert result.finish_reason == "length"


def test_sound_leaves_when_a_third_of_the_tokens_exist_at_most(engine, tap):
    engine.generate(**ASKED, max_tokens=140)
    (heard_at,) = tap.tokens_at_first_sound.values()
    assert 21 <= heard_at <= 140 // 3


def test_the_authors_window_loses_frames_and_is_there_for_comparison(engine):
    exact = engine.generate(**ASKED, max_tokens=77).speech.samples
    window = engine.generate(**ASKED, max_tokens=77, decoder="window").speech.samples
    assert len(exact) == 11 * 2048
    assert len(window) == 8 * 2048


def test_constrained_tokens_are_legal_at_their_position(engine, tap):
    ids = read_speech_ids(engine.config.checkpoint)
    engine.generate(**ASKED | {"temperature": 3.0, "top_p": 1.0}, max_tokens=70)
    position = [(token - ids.first) // ids.codebook_size for token in tap.last]
    assert position == [index % 7 for index in range(len(position))]


def test_unconstrained_nonsense_is_dropped_and_counted(engine, tap):
    wild = ASKED | {"constrain": False, "temperature": 100.0, "top_p": 1.0}
    result = engine.generate(**wild, max_tokens=70)
    assert result.counts["dropped_tokens"] + 7 * result.counts["frames"] == len(tap.last)
    assert result.speech.samples.shape == (2048 * result.counts["frames"],)
