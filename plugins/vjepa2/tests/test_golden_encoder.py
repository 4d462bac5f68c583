"""Latents of videos, of single frames and of hidden places are transformers' and the authors'."""

from __future__ import annotations

import torch
from vjepa2_goldens import AC, BASE, call, load

from walk_plugin_vjepa2.encoder import FrameEncoder, VideoEncoder
from walk_plugin_vjepa2.masked import MaskedPredictor

CLOSE = {"atol": 1e-5, "rtol": 0}


def test_a_videos_latents_are_transformers(base_golden):
    clip = base_golden["pixel_values_videos"][0]
    (latent,) = call(load(VideoEncoder, BASE), "encode", clip=[clip])["latent"]
    torch.testing.assert_close(latent, base_golden["encoder"][0], **CLOSE)


def test_a_single_frame_is_repeated_to_fill_its_tubelet(base_golden):
    frame = base_golden["pixel_values_videos"][0, :1]
    (latent,) = call(load(VideoEncoder, BASE), "encode", clip=[frame])["latent"]
    torch.testing.assert_close(latent, base_golden["encoder_one_frame"][0], **CLOSE)


def test_clips_of_several_lengths_are_encoded_in_one_call_each_as_alone(base_golden):
    clip = base_golden["pixel_values_videos"][0]
    clips = [clip, clip[:1], clip[:4], clip.flip(0), clip[2:6]]
    encoder = load(VideoEncoder, BASE)
    together = call(encoder, "encode", clip=clips)["latent"]
    for one, latent in zip(clips, together, strict=True):
        torch.testing.assert_close(latent, call(encoder, "encode", clip=[one])["latent"][0], **CLOSE)


def test_pooled_is_the_mean_over_tokens_where_it_is_asked_for(base_golden):
    latent = base_golden["encoder"][0]
    pooled = call(load(VideoEncoder, BASE), "pool", latent=[latent, latent], pooled=[True, False])["latents"]
    assert torch.equal(pooled[0], latent.mean(dim=0))
    assert torch.equal(pooled[1], latent)


def test_hidden_places_are_predicted_from_those_seen(base_golden):
    (predicted,) = call(
        load(MaskedPredictor, BASE),
        "predict",
        latent=[base_golden["encoder"][0]],
        context=[base_golden["context"][0]],
        target=[base_golden["target"][0]],
    )["predicted"]
    torch.testing.assert_close(predicted, base_golden["predicted"][0], **CLOSE)


def test_without_masks_every_place_is_predicted_from_every_place(base_golden):
    latent = base_golden["encoder"][0]
    rows = {"latent": [latent, latent], "context": [None, base_golden["context"][0]]}
    rows["target"] = [None, base_golden["target"][0]]
    everything, some = call(load(MaskedPredictor, BASE), "predict", **rows)["predicted"]
    torch.testing.assert_close(everything, base_golden["predicted_default_masks"][0], **CLOSE)
    torch.testing.assert_close(some, base_golden["predicted"][0], **CLOSE)


def test_a_robots_frames_are_encoded_one_by_one_and_normed(ac_golden):
    frames = ac_golden["clip"][0].transpose(0, 1)
    looked = call(load(FrameEncoder, AC), "look", frames=[frames])
    latents = torch.cat([*looked["past"][0], looked["latent"][0]])
    torch.testing.assert_close(latents, ac_golden["latents"][0], **CLOSE)


def test_before_they_are_normed_they_are_the_encoders(ac_golden):
    frame = ac_golden["clip"][0].transpose(0, 1)[:1]
    raw = load(FrameEncoder, AC)._latents(frame[:, None].expand(-1, 2, -1, -1, -1))
    torch.testing.assert_close(raw, ac_golden["frame0_raw"], **CLOSE)


def test_scenes_of_several_lengths_are_looked_at_in_one_call(ac_golden):
    frames = ac_golden["clip"][0].transpose(0, 1)
    encoder = load(FrameEncoder, AC)
    looked = call(encoder, "look", frames=[frames[:1], frames, frames[1:3]])
    assert [past.shape[0] for past in looked["past"]] == [0, 3, 1]
    latents = ac_golden["latents"][0].view(4, 16, 48)
    for latent, expected in zip(looked["latent"], (latents[0], latents[3], latents[2]), strict=True):
        torch.testing.assert_close(latent, expected, **CLOSE)
    pooled = call(encoder, "pool", past=looked["past"], latent=looked["latent"], pooled=[True, False, True])
    assert [tuple(each.shape) for each in pooled["latents"]] == [(1, 48), (4, 16, 48), (2, 48)]
    torch.testing.assert_close(pooled["latents"][2], latents[1:3].mean(dim=1), **CLOSE)
