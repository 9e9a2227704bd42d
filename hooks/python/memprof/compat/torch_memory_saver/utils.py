"""Names of that library's module of this name that other code uses."""

import os
from contextlib import contextmanager


def is_xpu():
    """Whether torch runs on Intel GPUs, which memprof does not serve."""
    return False


@contextmanager
def change_env(key, value):
    """Sets an environment variable inside the block."""
    old = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if old is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = old
