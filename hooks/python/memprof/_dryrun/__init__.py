"""A dry run: a script that uses CUDA runs without a GPU, and the hook records the requests that it would make.

`memprof record --dry-run` sets MEMPROF_DRY_RUN and puts the simulated driver under the hook. Then

  guard.py      lets torch's C++ work on tensors of a CUDA device that has no driver
  card.py       answers what a script asks torch.cuda: the card of --card, streams, events, memory
  operators.py  runs operators on fake tensors of torch (sizes and types, no values), which are on cuda:0
                or on the host
  kernels.py    takes, for an operator, the way that a build with CUDA takes on that card: what cuDNN's
                batch norm and the attention kernels save, which workspaces libraries ask for
  missing.py    is for operators that have no fake kernel
  storages.py   makes each new storage of the device an allocation of the hook, and its end a free
  values.py     what a script gets that asks for a value, since there is none
  distributed.py process groups of which one rank runs
  edits.py      the job as if its code were another: --checkpoint, --offload
  foreign.py    Triton kernels and extensions
  course.py     ends the job when its requests repeat

Everything else is as in any recorded job: the script, autograd, the optimizers and their order of frees are
real, and phases, modules, labels, stacks and iterations come from the hook and from _attribution.
"""

import os


def wanted():
    """True when this process is a dry run."""
    return bool(os.environ.get("MEMPROF_DRY_RUN"))


def install(torch):
    """Is called once, right after the import of torch. Ends the process if this torch cannot be run so."""
    try:
        from memprof._dryrun import operators

        operators.install(torch)
    except Exception as error:
        refuse("torch %s cannot be run without a GPU: %s: %s" % (torch.__version__, type(error).__name__, error))


def refuse(text):
    """Ends the process with an error of usage."""
    import sys

    sys.stdout.flush()
    os.write(2, ("memprof: dry run: %s\n" % text).encode())
    os._exit(2)
