"""Code that is no operator of torch: Triton kernels, and extensions in C++ or CUDA.

A Triton kernel writes into tensors that torch has allocated, so it is not run, and no request is missing. An extension
that needs the data of a tensor, or a driver, raises: then the process ends with an error of usage that says what helps.
"""

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
    "no rule registered for HOP": "an operator that is made of a function, as flex attention is, cannot be run; call one that is not, as "
    "torch.nn.functional.scaled_dot_product_attention",
}


def install(report):
    """`report(kind, text)` reports an assumption, the first of its kind."""
    _inject.wait_for("triton.runtime.jit", lambda module: _leave_out(module, report), "Triton kernels cannot be run")
    before = sys.excepthook

    def ended(kind, error, trace):
        before(kind, error, trace)
        why = next((meaning for text, meaning in CAUSES.items() if re.search(text, str(error))), None)
        if why:
            lines = ["%s:%d" % (frame.filename, frame.lineno) for frame in traceback.extract_tb(trace) if values.of_script(frame.filename)]
            _dryrun.refuse("%s: %s" % (lines[-1] if lines else "?", why))

    sys.excepthook = ended


def _leave_out(module, report):
    def chosen(kernel, grid):
        def launch(*_args, **_options):
            name = getattr(getattr(kernel, "fn", kernel), "__name__", "?")
            report("triton", "Triton kernels (%s) are not run: they write into tensors that are there" % name)

        return launch

    module.KernelInterface.__getitem__ = chosen
