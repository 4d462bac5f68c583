"""Pictures of a family: its tracks, Walks and streams, as SVG and as Mermaid."""

from walkserve.graph.drawing.mermaid import draw_mermaid
from walkserve.graph.drawing.svg import draw_svg

__all__ = ["draw_mermaid", "draw_svg"]
