"""How often the toy finds its goal: planned in the latents, moved in the world, ten steps a goal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from walk_plugin_vjepa2.cem import concluded, draw, first_belief, refined
from walk_plugin_vjepa2.encoder import FrameEncoder
from walk_plugin_vjepa2.predictor import ActionPredictor
from walk_plugin_vjepa2.scoring import energies
from walk_plugin_vjepa2.toy.dots import after, episodes, pictures, states
from walk_plugin_vjepa2.toy.train_encoder import LOOK
from walk_plugin_vjepa2.toy.train_predictor import predicted
from walk_plugin_vjepa2.world import VJepa2AC
from walkserve_sdk import Checkpoint

PLANNING = VJepa2AC.Options(horizon=1, samples=64, iterations=6, topk=8, maxnorm=0.075)
"""What the toy is planned with; momenta as by default."""

STEPS = 10
REACHED = 0.04


@dataclass(frozen=True)
class Score:
    """Of some goals: how many were reached, and how far from them the disc was in the end, on average."""

    reached: int
    distance: float

    def __str__(self) -> str:
        return f"{self.reached} reached, {self.distance:.3f} away"


@torch.inference_mode()
def print_score(folder: Path, *, goals: int) -> None:
    """Print how planned and how random actions do, and how far the goals were."""
    checkpoint = Checkpoint({"main": folder}, label=str(folder))
    cpu = {"device": torch.device("cpu"), "dtype": torch.float32}
    encoder, predictor = FrameEncoder.load(checkpoint, **cpu), ActionPredictor.load(checkpoint, **cpu)
    random = torch.Generator().manual_seed(20_000)  # training draws from other seeds
    begun, wanted = _inside(states(goals, random)), _inside(states(goals, random))
    state, goal = begun, _latents(encoder, wanted)
    for step in range(STEPS):
        actions = [
            _plan(predictor, latent, pose, aim, seed=step)
            for latent, pose, aim in zip(_latents(encoder, state), state, goal, strict=True)
        ]
        state = after(state, torch.stack(actions))
    drifted = begun
    for action in episodes(goals, STEPS + 1, random)[1].unbind(1):
        drifted = after(drifted, action)
    print(f"of {goals} goals, {_score(begun, wanted).distance:.3f} away at first: planned", end=" ")
    print(f"{_score(state, wanted)}; with random actions {_score(drifted, wanted)}", flush=True)


def _inside(state: Tensor) -> Tensor:
    """Where the whole disc is in the picture."""
    return torch.cat([state[:, :2] * (0.25 / 0.3), state[:, 2:]], 1)


def _latents(encoder: FrameEncoder, state: Tensor) -> Tensor:
    return encoder._look(LOOK.normed((255 * pictures(state)).round()))


def _plan(predictor: ActionPredictor, latent: Tensor, pose: Tensor, goal: Tensor, *, seed: int) -> Tensor:
    """The first step of the plan, as ``Planner`` finds it."""
    random = torch.Generator().manual_seed(seed)
    belief = first_belief(PLANNING)
    for _ in range(PLANNING.iterations):
        actions = draw(belief, PLANNING, random)
        count = len(actions)
        start = latent.expand(count, 1, -1, -1), actions, pose.expand(count, 1, -1)
        belief = refined(belief, actions, energies(predicted(predictor, *start)[:, 0], goal), PLANNING)
    return concluded(belief)[0]


def _score(state: Tensor, wanted: Tensor) -> Score:
    away = (state - wanted)[:, :3].norm(dim=1)
    return Score(int((away < REACHED).sum()), float(away.mean()))
