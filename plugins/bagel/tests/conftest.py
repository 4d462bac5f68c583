"""The golden checkpoint, and what the reference made of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from walk_plugin_bagel.pen import Pen
from walk_plugin_bagel.settings import Settings, read_settings
from walk_plugin_bagel.text import Tokenizer
from walkserve_sdk import Checkpoint

sys.path.insert(0, str(Path(__file__).parent))  # for what these tests share

from by_hand import DATA, Bench


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return Checkpoint({"main": DATA / "golden"}, "golden")


@pytest.fixture(scope="session")
def settings(checkpoint: Checkpoint) -> Settings:
    return read_settings(checkpoint)


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer.load(checkpoint, device=None, dtype=None)


@pytest.fixture(scope="session")
def pen(checkpoint: Checkpoint) -> Pen:
    return Pen.load(checkpoint, device=None, dtype=None)


@pytest.fixture(scope="session")
def bench(checkpoint: Checkpoint) -> Bench:
    return Bench(checkpoint)


@pytest.fixture
def make_bench() -> type[Bench]:
    return Bench


@pytest.fixture(scope="session")
def said() -> dict[str, Any]:
    """The reference's counts, ids and texts."""
    return json.loads((DATA / "golden.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def tensors() -> dict[str, torch.Tensor]:
    """The reference's velocities and latents."""
    return load_file(DATA / "golden.safetensors")
