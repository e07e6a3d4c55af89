"""A child that cannot outlive the process that started it: Linux's parent-death signal, set by the child itself."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGKILL at the parent's death, then looks whether it died before that.

    The kernel means the *thread* that started this process. The setting survives exec, but not into a file with
    set-user-id or capabilities.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
