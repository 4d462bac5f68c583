"""Making the families for trials known to a server, as pip would with a plugin."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path, family: str = "trial") -> str:
    """Make a family known to whoever has the ``PYTHONPATH`` that is returned.

    Args:
        folder: An empty one; it has to stay as long as whoever needs the family.
        family: ``"trial"``, ``"album"``, ``"easel"``, ``"futures"``, ``"guided"`` or ``"robot"``.
    """
    info = folder / f"walk_plugin_{family}-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: walk-plugin-{family}\nVersion: 0.0.0\n")
    has_routes = (HERE / f"{family}_family" / "routes.py").is_file()
    routes = f"[walkserve]\n{family} = {family}_family.routes\n" if has_routes else ""
    (info / "entry_points.txt").write_text(
        f"[walkserve.models]\n{family} = {family}_family:{family.capitalize()}\n{routes}"
    )
    return os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
