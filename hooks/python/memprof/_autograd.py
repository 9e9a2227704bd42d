"""The function by which torch runs autograd's engine; phases and regions wrap it."""

import sys


def wrap_run(wrap):
    """Replaces that function by `wrap(function)` in both modules that name it. Does nothing where it is missing."""
    graph, autograd = sys.modules.get("torch.autograd.graph"), sys.modules.get("torch.autograd")
    run = getattr(graph, "_engine_run_backward", None)
    if run is None:
        return
    wrapped = graph._engine_run_backward = wrap(run)
    if getattr(autograd, "_engine_run_backward", None) is run:
        autograd._engine_run_backward = wrapped
