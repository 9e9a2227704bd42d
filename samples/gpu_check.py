"""The acceptance suite for a machine with a CUDA GPU and torch.

    make gpu-check PART=1               a part of it, at most eight minutes; PART=1,2 two of them
    make gpu-check                      all of it, one part after the other
    python3 samples/gpu_check.py NAME…  some cases
    python3 samples/gpu_check.py --list the parts, their cases, and what each took when it was last run

It needs the built bin/memprof and no Go toolchain. Each case runs real jobs, with and
without `memprof record`, and compares. Cases that measure time or the use of the card run
first, each alone; then the others, several at a time. What is measured is printed as a
table with the device and the versions; the last line says `N passed, N failed, N not run`.
A part that is cut off, by its limit or by a signal, prints what it had.
"""

import argparse
import concurrent.futures
import importlib
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

import checks
from checks import parts
from checks.suite import ALONE, BEGUN, CASES, ENDING, HERE, PYTHON, Failed, LeftOut, Suite, kill

for module in pkgutil.iter_modules(checks.__path__):
    if not module.name.startswith("pytest_"):  # plugins of pytest, which only PyTorch's own tests need
        importlib.import_module("checks." + module.name)

KNOWN = os.path.join(HERE, "results", "parts.json")
MOST_OF_FAILURE = 400  # characters of what a case said that are kept


def versions():
    script = "import torch; print(torch.__version__); print(torch.cuda.get_device_name(0))"
    torch_version, device = subprocess.run([PYTHON, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[:2]
    driver = "unknown"
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    return f"{device}, driver {driver}, torch {torch_version}"


class Terminated(BaseException):
    """A signal has ended the suite."""


def terminate(number, frame):
    raise Terminated


class Run:
    """Runs cases until a deadline, and keeps what came of each."""

    def __init__(self, opts, device):
        self.opts = opts
        self.device = device
        self.memprof = subprocess.run([opts.memprof, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        self.deadline = time.monotonic() + opts.limit if opts.limit else float("inf")
        self.figures = []  # of cases that passed: (what, value, budget or "")
        self.outcomes = {}  # of cases that ended: {"passed", "seconds", "memprof", "device"}, and "failure", the end of what it said

    def judge(self, name):
        """Runs a case, if there is time, and prints what came of it."""
        start = time.monotonic()
        if start >= self.deadline:
            return
        suite = Suite(os.path.abspath(self.opts.memprof), os.path.join(self.opts.work, name), self.opts.keep, self.deadline)
        failure = None
        try:
            CASES[name](suite)
            suite.lines.append(f"  ok in {time.monotonic() - start:.1f} s")
            self.figures += suite.figures
        except LeftOut as left:
            print(f"{name}\n  left out: {left}", flush=True)
            return
        except Failed as failed:
            failure = str(failed)
        except Exception:  # a mistake in one case is no reason to lose the others
            failure = traceback.format_exc().rstrip()
        end = time.monotonic()
        if failure is not None and end >= self.deadline:
            print(f"{name}\n  cut off after {end - start:.0f} s", flush=True)
            return
        self.outcomes[name] = {"passed": failure is None, "seconds": round(end - start, 1), "memprof": self.memprof, "device": self.device}
        if failure is not None:
            suite.lines.append(f"  FAILED: {failure}")
            self.outcomes[name]["failure"] = re.sub(r"(?:/[\w.-]+)+/", "", failure)[-MOST_OF_FAILURE:]  # without folders of this machine
        print("\n".join([name, *suite.lines]), flush=True)

    def run(self, names):
        """Runs cases, those that are to be alone first. Returns whether a signal ended it."""
        signal.signal(signal.SIGTERM, terminate)
        pool = concurrent.futures.ThreadPoolExecutor(self.opts.jobs)
        try:
            for name in names:
                if name in ALONE:
                    self.judge(name)
            list(pool.map(self.judge, [name for name in names if name not in ALONE]))
        except (Terminated, KeyboardInterrupt):
            self.deadline = 0
            ENDING.set()
            for process in list(BEGUN):
                kill(process)
            return True
        finally:
            pool.shutdown(cancel_futures=True)
        return False

    def summary(self, names):
        """The figures, and how many cases passed."""
        width = max((len(what) for what, _, _ in self.figures), default=0)
        lines = ["", self.device]
        lines += [f"{what:<{width}}  {value}" + (f"   budget {budget}" if budget else "") for what, value, budget in self.figures]
        left = [name for name in names if name not in self.outcomes]
        if left:
            lines += ["", "not run: " + " ".join(left)]
        failed = [name for name in names if name in self.outcomes and not self.outcomes[name]["passed"]]
        if failed:
            lines += ["", "failed: " + " ".join(failed)]
        return lines + ["", f"{len(self.outcomes) - len(failed)} passed, {len(failed)} failed, {len(left)} not run"]


def numbers(text):
    """The parts of an argument like "1,3"."""
    try:
        found = [int(number) for number in text.split(",")]
    except ValueError:
        found = [0]
    if not set(found) <= set(parts.all_parts()):
        raise argparse.ArgumentTypeError(f"parts are numbers from 1 to {len(parts.all_parts())}, separated by commas, not {text!r}")
    return found


def chosen(opts):
    """Names of the cases to run."""
    of_parts = [name for part in opts.part or () for name in parts.cases(part)]
    names = opts.cases + of_parts or [name for part in parts.all_parts() for name in parts.cases(part)]
    return list(dict.fromkeys(names))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--part", type=numbers, help="parts of the suite, for instance 1,3")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--limit", type=float, help=f"seconds, after which no case begins and none goes on (default {parts.LIMIT} for each part)")
    parser.add_argument("--results", default=KNOWN, help="file to keep what came of each case in, and how long it took")
    parser.add_argument("--jobs", type=int, default=min(4, (os.cpu_count() or 1) // 2 or 1), help="cases at a time that need not be alone")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("--work", default=os.path.join("/tmp", f"memprof-gpu-check-{os.getpid()}"))
    parser.add_argument("--keep", help="leave the recordings of the samples in this folder")
    opts = parser.parse_args()
    known = parts.read_results(opts.results)
    if opts.list:
        print("\n".join(parts.listing(known)))
        return 0
    unknown = set(opts.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if opts.limit is None and opts.part:
        opts.limit = parts.LIMIT * len(opts.part)
    names = chosen(opts)
    device = versions()
    print(device, flush=True)
    suite = Run(opts, device)
    ended = suite.run(names)
    parts.write_results(opts.results, {**known, **suite.outcomes})
    print("\n".join(suite.summary(names)), flush=True)
    if ended:
        os._exit(1)  # threads of cases may still wait for processes that were killed
    return 0 if len(suite.outcomes) == len(names) and all(outcome["passed"] for outcome in suite.outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
