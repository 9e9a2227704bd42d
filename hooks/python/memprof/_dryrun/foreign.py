"""Code that is no operator of torch: Triton kernels, and extensions in C++ or CUDA.

A Triton kernel is not run. It asks for no memory of torch's, but which values and sizes follow from what it writes is
not known. So its launch ends the process with an error of usage that says what helps, unless the kernel was made known:
it is launched in an operator's fake kernel, as torch.library.triton_op makes one, or --assume triton=in-place says that
kernels only write into tensors that are there. An extension that needs the data of a tensor, or a driver, raises, which
ends the process likewise.
"""

import os
import re
import sys
import traceback

from memprof import _dryrun, _inject
from memprof._dryrun import values

# What an exception that ends the script says, and what it means.
CAUSES = {
    "[Cc]annot access data pointer of": "an extension needs the data of a tensor, which a dry run does not have; make its call an operator, "
    '@torch.library.custom_op("mine::name", mutates_args=()), and register what it returns: @name.register_fake',
    r"lib(c10_cuda|torch_cuda|cudart)\S* cannot open|CUDA_HOME environment variable is not set": "an extension of CUDA needs a torch that is built with CUDA",
    "0 active drivers": "Triton needs a driver, which a dry run does not have; launch the kernel by kernel[grid](...)",
    "no rule registered for HOP": "an operator that is made of a function cannot be run; call the function itself",
}

LAUNCHED = (
    "%s: the Triton kernel %s is launched, which cannot be run on tensors without values; make the function around it an operator, "
    '@torch.library.triton_op("mine::name", mutates_args={"out"}), or, if kernels only write into tensors that are there, '
    "say --assume triton=in-place"
)


def install(torch, report):
    """`report(kind, text)` reports an assumption, the first of its kind."""
    _inject.wait_for("triton.runtime.jit", lambda module: _leave_out(torch, module, report), "Triton kernels cannot be run")
    before = sys.excepthook

    def ended(kind, error, trace):
        before(kind, error, trace)
        why = next((meaning for text, meaning in CAUSES.items() if re.search(text, str(error))), None)
        if why:
            lines = ["%s:%d" % (frame.filename, frame.lineno) for frame in traceback.extract_tb(trace) if values.of_script(frame.filename)]
            _dryrun.refuse("%s: %s" % (lines[-1] if lines else "?", why))

    sys.excepthook = ended


def _leave_out(torch, module, report):
    known = bool(os.environ.get("MEMPROF_DRY_RUN_TRITON"))

    def chosen(kernel, grid):
        def launch(*_args, **_options):
            name = getattr(getattr(kernel, "fn", kernel), "__name__", "?")
            if known:
                report("triton", "Triton kernels (%s) are not run: they are assumed to write into tensors that are there" % name)
            elif not _in_fake_kernel(torch):
                _dryrun.refuse(LAUNCHED % (values.line_of_script(), name))

        return launch

    module.KernelInterface.__getitem__ = chosen


def _in_fake_kernel(torch):
    """Whether the fake kernel of an operator runs: the script has said what the operator returns and writes."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
