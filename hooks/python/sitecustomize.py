"""Runs at the start of every Python process under `memprof record`.

`record` puts this folder first on PYTHONPATH, so Python imports this file instead of the
sitecustomize of the machine or the user. This file runs that one first, and then waits for the
import of torch. It must never fail or print, and cost nothing in programs without torch.
"""

import os
import sys


def _run_shadowed():
    """Executes the next sitecustomize on sys.path, under its own name. Those before it have run: one may be another memprof's."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.abspath(p or os.getcwd()) for p in sys.path]
    elsewhere = [p for p in places[places.index(here) + 1 if here in places else 0:] if p != here]
    if sys.version_info[0] < 3:
        import imp

        imp.load_module("sitecustomize", *imp.find_module("sitecustomize", elsewhere))
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    ours = sys.modules.get("sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


try:
    _run_shadowed()
finally:
    # An exception of the shadowed file goes to the site module, as it would without this file.
    if os.environ.get("MEMPROF_SPOOL"):
        try:
            from memprof import _inject

            _inject.offer_memory_saver()
            _inject.wait_for_torch()
        except Exception:  # never break the job
            pass
