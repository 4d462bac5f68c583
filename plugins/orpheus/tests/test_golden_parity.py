"""Parity with the reference, through the plugin's own cache, sampler and codec."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from walk_plugin_orpheus.text import Tokenizer
from walkserve import Engine
from walkserve.engine import batch as engine_batch
from walkserve.engine.sampler import kept
from walkserve_sdk import Checkpoint

TEXT = "Hello there, how are you?"
ASKED = {
    "text": TEXT,
    "outputs": ("speech",),
    "voice": "tara",
    "temperature": 0.0,
    "repetition_penalty": 1.3,
    "max_tokens": 77,
    "codec_noise": False,
}


@pytest.fixture
def fast_engine(engine: Engine) -> Engine:
    """Not deterministic: rows attend together, nothing is padded."""
    folder = engine.config.folders["main"]
    with Engine(f"orpheus={folder}", device="cpu", dtype="float32") as fast:
        yield fast


def test_the_prompt_is_the_references(engine, golden):
    checkpoint: Checkpoint = engine.config.checkpoint
    prompt = Tokenizer.load(checkpoint, device=None, dtype=None).prompt(TEXT, "tara")
    assert prompt == golden["prompt"].flatten().tolist()


def test_greedy_tokens_and_the_waveform_are_the_references(engine, tap, golden):
    result = engine.generate(**ASKED)
    assert tap.last == golden["greedy_tokens"].flatten().tolist()
    wave = golden["full.nonoise.wav"].flatten().numpy()
    assert result.speech.rate == 24_000
    assert result.speech.samples.dtype == np.float32
    assert result.speech.samples.shape == wave.shape == (22_528,)
    assert np.abs(result.speech.samples - wave).max() <= 1e-4
    assert result.finish_reason == "length"
    assert result.usage == {"input_tokens": golden["prompt"].numel(), "output_tokens": 77}
    assert result.counts == {"frames": 11}


def test_the_waveform_is_the_references_outside_deterministic_mode_too(fast_engine, golden):
    wave = golden["full.nonoise.wav"].flatten().numpy()
    assert np.abs(fast_engine.generate(**ASKED).speech.samples - wave).max() <= 1e-4


def test_logits_and_the_kept_set_of_step_ten_are_the_references(engine, golden, monkeypatch):
    """Scores after ten greedy tokens, and what temperature 0.6 and top-p 0.8 would keep of them."""
    asked: list[tuple[torch.Tensor, engine_batch.SampleRow]] = []
    sample = engine_batch.sample

    def heard(logits, rows):
        asked.append((logits[0].clone(), rows[0]))
        return sample(logits, rows)

    monkeypatch.setattr(engine_batch, "sample", heard)
    engine.generate(**ASKED | {"max_tokens": 11})
    logits, row = asked[10]
    assert torch.allclose(logits, golden["step10.logits"].flatten(), atol=1e-4)
    row = dataclasses.replace(row, temperature=0.6, top_p=0.8)
    reference = golden["step10.keep"].flatten()
    expected = reference.nonzero().flatten() if reference.dtype == torch.bool else reference
    assert kept(logits, row) == sorted(expected.tolist())
