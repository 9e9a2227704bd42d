"""Child processes: they inherit the hook by LD_PRELOAD, unless the job has changed that."""

import os
from contextlib import contextmanager

from memprof import _hook

from .utils import change_env


@contextmanager
def configure_subprocess():
    """Processes started inside the block have the hook, even if the job has taken it out of LD_PRELOAD."""
    old = os.environ.get("LD_PRELOAD", "")
    path = _hook.path() if _hook.library() is not None else None
    if path is None or path in old.replace(" ", ":").split(":"):
        yield
        return
    with change_env("LD_PRELOAD", path + ":" + old if old else path):
        yield
