"""Dry runs with a torch that has CUDA: Triton kernels, which torch for the CPU comes without."""

import os
import re

from checks.suite import PYTHON, Failed, case

KERNEL = '''
import torch, triton
import triton.language as tl

@triton.jit
def double(source, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(source + at, mask=at < n), mask=at < n)

def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    LAUNCH[(4,)](x, out, x.numel(), BLOCK=256)
    return out
'''
PLAIN = KERNEL.replace("LAUNCH", "double") + "twice(torch.zeros(1000, device='cuda'))\n"
REGISTERED = (
    KERNEL.replace("LAUNCH", "torch.library.wrap_triton(double)").replace("def twice", '@torch.library.triton_op("mine::twice", mutates_args={})\ndef twice')
    + "twice(torch.zeros(1000, device='cuda'))\n"
)


@case
def dry_run_of_triton(suite):
    """A launch ends a dry run with its line; in an operator, or assumed to write in place, it is left out."""
    for name, text, flags, status in (
        ("plain", PLAIN, [], 2),
        ("registered", REGISTERED, [], 0),
        ("assumed", PLAIN, ["--assume", "triton=in-place"], 0),
    ):
        script, plan = os.path.join(suite.work, f"triton_{name}.py"), os.path.join(suite.work, "dry_" + name)
        with open(script, "w") as f:
            f.write(text)
        done = suite.run([suite.memprof, "record", "--dry-run", *flags, "--force", "-o", plan, "--", PYTHON, script], expect=status)
        if status and not re.search(r"triton_plain\.py:\d+: the Triton kernel double is launched.*torch\.library\.triton_op", done.stderr):
            raise Failed(f"the refusal does not name the line and what helps: {done.stderr[-1500:]}")
        exported = suite.run([suite.memprof, "export", "csv", plan]).stdout
        requests = [int(line.split(",")[column]) for column in [exported.split("\n")[0].split(",").index("requested")] for line in exported.splitlines()[1:] if ",alloc," in line]
        if requests != [4000, 4000]:
            raise Failed(f"{name}: requests of {requests} bytes, expected two of 4000")
