"""What several velocities come to: towards the text, towards the images, and not too far."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

RenormType = Literal["global", "channel", "text_channel"]


def guided(
    full: Tensor,
    no_text: Tensor,
    no_image: Tensor | None,
    *,
    cfg_text_scale: float,
    cfg_img_scale: float,
    cfg_renorm_type: RenormType,
    cfg_renorm_min: float,
) -> Tensor:
    """One picture's guided velocity, as large as each of them.

    Args:
        full: With all there is, (..., numbers of a token).
        no_text: Without the last text.
        no_image: Without the images; None where they do not guide.
        cfg_renorm_type: What grows no longer than it is in ``full``: the whole picture, each token, or each
            token before images guide it.
        cfg_renorm_min: The least share of its length that it is cut to; 1 cuts nothing.
    """
    mixed = no_text + cfg_text_scale * (full - no_text)
    if cfg_renorm_type == "text_channel":
        mixed = _shortened(mixed, full, cfg_renorm_min, dim=-1)
    if no_image is not None:
        mixed = no_image + cfg_img_scale * (mixed - no_image)
    match cfg_renorm_type:
        case "global":
            return _shortened(mixed, full, cfg_renorm_min, dim=None)
        case "channel":
            return _shortened(mixed, full, cfg_renorm_min, dim=-1)
        case "text_channel":
            return mixed


def _shortened(mixed: Tensor, full: Tensor, least: float, *, dim: int | None) -> Tensor:
    """As long as ``full`` where it is longer."""
    length = mixed.norm(dim=dim, keepdim=dim is not None)
    wanted = full.norm(dim=dim, keepdim=dim is not None)
    return mixed * (wanted / (length + 1e-8)).clamp(min=least, max=1.0)
