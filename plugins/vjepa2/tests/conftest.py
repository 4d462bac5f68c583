"""The goldens, and the modules that have to give them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))  # tests here share what vjepa2_goldens has

from vjepa2_goldens import AC, DATA, World, load

from walk_plugin_vjepa2.predictor import ActionPredictor


@pytest.fixture(scope="session")
def base_golden() -> dict[str, Tensor]:
    """Of transformers' ``VJEPA2Model``."""
    return load_file(DATA / "base" / "golden.safetensors")


@pytest.fixture(scope="session")
def ac_golden() -> dict[str, Tensor]:
    """Of the authors' encoder, predictor and planner."""
    return load_file(DATA / "ac" / "golden.safetensors")


@pytest.fixture(scope="session")
def predictor() -> ActionPredictor:
    return load(ActionPredictor, AC)


@pytest.fixture
def world(predictor: ActionPredictor) -> World:
    return World(predictor)
