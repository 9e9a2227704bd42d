"""The acceptance suite for a machine with a CUDA GPU and torch.

    make gpu-check                      all of it
    python3 samples/gpu_check.py NAME…  some cases; --list names them

It needs the built bin/memprof and no Go toolchain. Each case runs real jobs, with and
without `memprof record`, and compares. Cases that measure time or the use of the card run
first, each alone; then the others, several at a time. What is measured is printed as a
table with the device and the versions; the last line says `N passed, N failed`.
"""

import argparse
import concurrent.futures
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
import traceback

import checks
from checks.suite import ALONE, CASES, HERE, PYTHON, Failed, Suite

for module in pkgutil.iter_modules(checks.__path__):
    if not module.name.startswith("pytest_"):  # plugins of pytest, which only PyTorch's own tests need
        importlib.import_module("checks." + module.name)


def versions():
    script = "import torch; print(torch.__version__); print(torch.cuda.get_device_name(0))"
    torch_version, device = subprocess.run([PYTHON, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[:2]
    driver = "unknown"
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    return f"{device}, driver {driver}, torch {torch_version}"


def judged(name, opts):
    """Runs a case and prints what came of it: its figures, or None when it failed."""
    suite = Suite(os.path.abspath(opts.memprof), os.path.join(opts.work, name), opts.keep)
    start = time.monotonic()
    try:
        CASES[name](suite)
        suite.lines.append(f"  ok in {time.monotonic() - start:.1f} s")
        figures = suite.figures
    except Failed as failed:
        suite.lines.append(f"  FAILED: {failed}")
        figures = None
    except Exception:  # a mistake in one case is no reason to lose the others
        suite.lines.append("  FAILED: " + traceback.format_exc().rstrip())
        figures = None
    print("\n".join([name, *suite.lines]), flush=True)
    return figures


def run(names, opts):
    figures = [judged(name, opts) for name in names if name in ALONE]
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        figures += pool.map(lambda name: judged(name, opts), [name for name in names if name not in ALONE])
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=min(4, (os.cpu_count() or 1) // 2 or 1), help="cases at a time that need not be alone")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("--work", default=os.path.join("/tmp", f"memprof-gpu-check-{os.getpid()}"))
    parser.add_argument("--keep", help="leave the recordings of the samples in this folder")
    opts = parser.parse_args()
    if opts.list:
        print("\n".join(CASES))
        return 0
    unknown = set(opts.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    print(versions(), flush=True)
    outcomes = run(opts.cases or CASES, opts)
    figures = [figure for outcome in outcomes if outcome is not None for figure in outcome]
    width = max((len(what) for what, _, _ in figures), default=0)
    print(f"\n{versions()}")
    for what, value, budget in figures:
        print(f"{what:<{width}}  {value}" + (f"   budget {budget}" if budget else ""))
    failed = outcomes.count(None)
    print(f"\n{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
