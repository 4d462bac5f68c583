"""V-JEPA 2: a video's latents, and those of its hidden parts. The declaration; it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from walk_plugin_vjepa2.frame_options import FrameOptions, check_frame_options
from walkserve_sdk import (
    Component,
    Hub,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Tensor,
    Track,
    Walk,
    WalkGraph,
    track,
)


class VJepa2(Model):
    """Video in, one latent per patch and pair of frames out; hidden ones are predicted from those seen."""

    inputs = ("video", "image", "tensor")
    own_surfaces = ("encodings",)

    @dataclass(frozen=True)
    class Options(FrameOptions):
        """What a client may choose.

        Args:
            pooled: One latent for the whole video, the mean of its tokens.
        """

        pooled: bool = False

    # a folder may hold the authors' .pt instead, with or without a config.json
    checkpoints = MappingProxyType({"main": Hub("facebook/vjepa2-vitl-fpc64-256", in_folder=())})

    reader = Component("walk_plugin_vjepa2.reading:ClipReader", device="cpu")
    encoder = Component("walk_plugin_vjepa2.encoder:VideoEncoder")
    predictor = Component("walk_plugin_vjepa2.masked:MaskedPredictor")

    latents = Output(Tensor())
    predicted = Output(Tensor())

    read = WalkGraph(
        Node(reader, "read", takes=("kinds", "names", "media"), gives=("clip", "context", "target"))
    )
    # Each output alone, or both of one encoding.
    _look = Node(encoder, "encode", takes="clip", gives="latent")
    _show = Node(encoder, "pool", takes=("latent", "pooled"), gives="latents", to=latents)
    _guess = Node(
        predictor, "predict", takes=("latent", "context", "target"), gives="predicted", to=predicted
    )
    encode = WalkGraph(_look, _show)
    predict_masked = WalkGraph(_look, _guess)
    encode_and_predict = WalkGraph(_look, _show, _guess)

    def check(self, request: Request) -> Request:
        check_frame_options(request)
        return request

    def warm_up(self) -> Request:
        from walk_plugin_vjepa2.warming import grey_clip

        return self.request(parts=(grey_clip(frames=1),))

    def prepare(self, request: Request) -> Walk:
        return self.read(
            kinds=[part.kind for part in request.parts],
            names=[part.name for part in request.parts],
            media=[part.data for part in request.parts],
        )

    @track
    def encoding(self, request: Request, prepared: Outcome) -> Track:
        clip, pooled = prepared["clip"], request.options.pooled
        context, target = prepared.get("context"), prepared.get("target")
        match request.wants(self.latents), request.wants(self.predicted):
            case True, False:
                yield self.encode(clip=clip, pooled=pooled)
            case False, True:
                yield self.predict_masked(clip=clip, context=context, target=target)
            case _:
                yield self.encode_and_predict(clip=clip, pooled=pooled, context=context, target=target)
        return None
