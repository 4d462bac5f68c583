"""The ViT: how the model looks at an image. SigLIP's encoder, at whatever size and shape the image has."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipEncoder

from walk_plugin_bagel.grids import numbers_of, to_grid
from walk_plugin_bagel.loading import LOOKER, load_part
from walk_plugin_bagel.positions import PositionTable, places
from walk_plugin_bagel.settings import Settings, read_settings
from walkserve_sdk import Batch, Checkpoint, Gives


class _Embeddings(nn.Module):
    """A patch is flat here, so that embedding it is a product of matrices."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        vision = settings.vision
        self.patch_embedding = nn.Linear(settings.patch_channels, vision.hidden_size)
        self.position_embedding = nn.Embedding(settings.vit_side**2, vision.hidden_size)


class _VisionModel(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        vision = settings.vision
        self.embeddings = _Embeddings(settings)
        self.encoder = SiglipEncoder(_siglip(settings))
        self.post_layernorm = nn.LayerNorm(vision.hidden_size, eps=vision.layer_norm_eps)


class _Tower(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.vision_model = _VisionModel(settings)


class _Connector(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inner, outer)
        self.fc2 = nn.Linear(outer, outer)

    def forward(self, features: Tensor) -> Tensor:
        return self.fc2(gelu(self.fc1(features), approximate="tanh"))


class Weights(nn.Module):
    """The published key layout."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.language.hidden_size
        self.vit_model = _Tower(settings)
        self.connector = _Connector(settings.vision.hidden_size, width)
        self.vit_pos_embed = PositionTable(settings.vit_side, width)


class ImageViT:
    """Patches of an image to tokens that the language model reads."""

    def __init__(self, weights: Weights, patch: int) -> None:
        self._weights = weights
        self._patch = patch

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> ImageViT:
        """Read its tensors of ``ema.safetensors``, strictly."""
        settings = read_settings(checkpoint)
        with torch.device("meta"):
            weights = Weights(settings)
        load_part(weights, checkpoint, LOOKER, device=device, dtype=dtype)
        return cls(weights, settings.vision.patch_size)

    def look(self, batch: Batch) -> Gives:
        """Each row's image as tokens: ``pixels``, uint8 (height, width, 3), to ``seen``, (tokens, width).

        Image by image: one fills a device by itself, needs no mask, and is the same whoever is beside it.
        """
        return {"seen": [self._seen(pixels) for pixels in batch.values("pixels")]}

    def tokens(self, images: Tensor) -> Tensor:
        """Images of one size, (images, 3, height, width) of [-1, 1]: (images, tokens, width outside)."""
        rows, columns = (side // self._patch for side in images.shape[2:])
        table = self._weights.vit_pos_embed
        return self._weights.connector(self.features(images)) + table.of_grid(rows, columns)

    def features(self, images: Tensor) -> Tensor:
        """What the ViT itself makes of them: (images, tokens, width inside)."""
        model, table = self._weights.vit_model.vision_model, self._weights.vit_pos_embed
        patches = torch.stack([to_grid(image, self._patch) for image in images]).to(table.pos_embed)
        rows, columns = patches.shape[1:3]
        position = model.embeddings.position_embedding(places(rows, columns, table.side, patches.device))
        embedded = model.embeddings.patch_embedding(patches.flatten(1, 2)) + position
        return model.post_layernorm(model.encoder(inputs_embeds=embedded).last_hidden_state)

    def _seen(self, pixels: Tensor) -> Tensor:
        device = self._weights.vit_pos_embed.pos_embed.device
        return self.tokens(numbers_of(pixels.to(device))[None])[0]


def _siglip(settings: Settings) -> SiglipVisionConfig:
    vision = settings.vision
    return SiglipVisionConfig(
        hidden_size=vision.hidden_size,
        intermediate_size=vision.intermediate_size,
        num_hidden_layers=vision.num_hidden_layers - 1,  # the last is neither stored nor used
        num_attention_heads=vision.num_attention_heads,
        num_channels=vision.num_channels,
        image_size=vision.image_size,
        patch_size=vision.patch_size,
        hidden_act=vision.hidden_act,
        layer_norm_eps=vision.layer_norm_eps,
        attn_implementation="sdpa",
    )
