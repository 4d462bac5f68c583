"""Making the family for trials known to a server, as pip would with a plugin."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path) -> str:
    """Make the family known to whoever has the ``PYTHONPATH`` that is returned.

    Args:
        folder: An empty one; it has to stay as long as whoever needs the family.
    """
    info = folder / "walk_plugin_trial-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-trial\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\ntrial = trial_family:Trial\n")
    return os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
