"""V-JEPA 2: a video encoder and, conditioned on actions, a world model. It imports no torch."""

from walk_plugin_vjepa2.video import VJepa2
from walk_plugin_vjepa2.world import VJepa2AC

__all__ = ["VJepa2", "VJepa2AC"]
