"""The call by which torch runs autograd's engine, which phases and regions put something around."""

import sys


def wrap_run(wrap):
    """Replaces the engine's run by `wrap(run)` in both modules that name it. Does nothing where torch has none."""
    graph, autograd = sys.modules.get("torch.autograd.graph"), sys.modules.get("torch.autograd")
    run = getattr(graph, "_engine_run_backward", None)
    if run is None:
        return
    wrapped = graph._engine_run_backward = wrap(run)
    if getattr(autograd, "_engine_run_backward", None) is run:
        autograd._engine_run_backward = wrapped
