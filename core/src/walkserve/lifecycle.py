"""What every child process of a server does first: leave signals to its parent, and not outlive it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
DEVICE_BROKE = 3
"""The exit code of a worker whose device is broken."""


def follow_parent(parent: int) -> None:
    """Leave signals to the process ``parent``, and die when it does. Called before anything is imported.

    A service manager may signal all processes of a service at once; it is the parent who ends the others.
    Only Linux can promise a signal at a parent's death; elsewhere a child whose server is killed
    outright stays until it is ended by hand.

    Raises:
        SystemExit: ``parent`` is gone already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # told, not asked before: a child whose parent died early would take its foster parent for it
    if os.getppid() != parent:
        sys.exit(1)
