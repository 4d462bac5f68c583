"""A declaration and its toy run need neither torch nor numpy."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["walkserve_sdk", "walkserve_sdk.media.limits", "walkserve_sdk.testing", "walk_plugin_orpheus"]
)
def test_importing_it_brings_in_neither_torch_nor_numpy(module: str) -> None:
    # a fresh interpreter, because another test may have imported torch into this one
    program = f"import sys, {module}; print(*(name for name in ('torch', 'numpy') if name in sys.modules))"
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
