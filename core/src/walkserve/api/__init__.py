"""walkserve.Engine: the server's conductor and workers in one process, for scripts, notebooks and tests."""

from walkserve.api.engine import Engine
from walkserve.api.generation import Generation
from walkserve_sdk.results import OutputEvent, Result, Sound

__all__ = ["Engine", "Generation", "OutputEvent", "Result", "Sound"]
