"""A client of a walkserve server: any model's inputs in, all its outputs out. Needs the extra ``client``."""

from walkserve_sdk.client.blocking import Client, ModelCard, Stream
from walkserve_sdk.client.session import AsyncClient, Generation, Session
from walkserve_sdk.requests import Part
from walkserve_sdk.results import OutputEvent, Result, Sound

__all__ = [
    "AsyncClient",
    "Client",
    "Generation",
    "ModelCard",
    "OutputEvent",
    "Part",
    "Result",
    "Session",
    "Sound",
    "Stream",
]
