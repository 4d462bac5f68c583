"""What may be imported without waiting for torch."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "PIL", "av")


@pytest.mark.parametrize(
    "module",
    [
        "walkserve_sdk",
        "walkserve_sdk.client",
        "walkserve_sdk.media.images",
        "walkserve_sdk.media.video",
        "walkserve_sdk.media.inline",
        "walkserve_sdk.serving",
        "walk_plugin_bagel",
        "walk_plugin_orpheus",
        "walkserve.cli",
        "walkserve.cli.checkup",
        "walkserve.cli.describe",
        "walkserve.cli.graph",
        "walkserve.graph.drawing",
        "walkserve.extensions",
        "walkserve.http",
        "walkserve.conductor.process",
        "walkserve.supervisor",
    ],
)
def test_importing_it_brings_in_nothing_heavy(module: str) -> None:
    # a fresh interpreter, because another test may have imported torch into this one
    program = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
