"""The authoring vocabulary of walkserve: everything a family is declared with. Imports no torch."""

from walkserve_sdk.checkpoints import Checkpoint, Hub
from walkserve_sdk.components import Component, PagedKV
from walkserve_sdk.errors import (
    BadRequest,
    Cancelled,
    ComponentError,
    ContextLengthExceeded,
    DeclarationError,
    LoadError,
    MediaTooLarge,
    ModelNotFound,
    PluginError,
    Unavailable,
    UnsupportedSurface,
    WalkFailed,
    WalkserveError,
)
from walkserve_sdk.graph import Fan, Loop, Node, Parallel, Sequential, Walk, WalkGraph
from walkserve_sdk.models import API_LEVEL, Budget, Model, ModelSpec
from walkserve_sdk.ports import Audio, Image, Output, Record, Tensor, Text, Video
from walkserve_sdk.requests import Options, Part, Request, SamplingParams
from walkserve_sdk.runtime import Batch, CacheView, Gives, KVShape, Stop, causal, token_count
from walkserve_sdk.streams import ChunkPolicy, Each, Fixed, Helping, LeftContext, SlidingWindow, Stream
from walkserve_sdk.surfaces import SpeechAsk
from walkserve_sdk.tracks import Fork, Outcome, Step, Track, track

__all__ = [
    "API_LEVEL",
    "Audio",
    "BadRequest",
    "Batch",
    "Budget",
    "CacheView",
    "Cancelled",
    "Checkpoint",
    "ChunkPolicy",
    "Component",
    "ComponentError",
    "ContextLengthExceeded",
    "DeclarationError",
    "Each",
    "Fan",
    "Fixed",
    "Fork",
    "Gives",
    "Helping",
    "Hub",
    "Image",
    "KVShape",
    "LeftContext",
    "LoadError",
    "Loop",
    "Model",
    "MediaTooLarge",
    "ModelNotFound",
    "ModelSpec",
    "Node",
    "Options",
    "Outcome",
    "Output",
    "PagedKV",
    "Parallel",
    "Part",
    "PluginError",
    "Record",
    "Request",
    "SamplingParams",
    "Sequential",
    "SlidingWindow",
    "SpeechAsk",
    "Step",
    "Stop",
    "Stream",
    "Tensor",
    "Text",
    "Track",
    "Unavailable",
    "UnsupportedSurface",
    "Video",
    "Walk",
    "WalkFailed",
    "WalkGraph",
    "WalkserveError",
    "causal",
    "token_count",
    "track",
]
