"""The pytest plugin on PyTorch's own tests: what they request is the same in each run."""

import concurrent.futures
import json
import os

from checks.memory_tests import apart
from checks.suite import PYTHON, Failed, LeftOut, case

TORCH_FILE, TORCH_CLASSES = "test_cuda.py", "TestCudaOptimsCUDA or TestCudaAutocast or TestBlockStateAbsorption"
RUNS, AT_ONCE, LEAST = 10, 5, 50


@case
def memory_of_torch_tests(suite):
    """Ten runs of at least fifty of PyTorch's own tests that use the card: no peak of one differs by more than 1 %."""
    if not os.environ.get("TORCH_TESTS"):
        raise LeftOut("TORCH_TESTS names no folder of PyTorch's tests")
    root = os.path.abspath(os.environ["TORCH_TESTS"])
    search = os.pathsep.join((os.path.abspath(os.path.join(suite.hooks, "python")), root))

    def run(number):
        path = os.path.abspath(os.path.join(suite.work, f"torch-tests-{number}.json"))
        command = ["env", "-C", os.path.join(root, "test"), "PYTHONPATH=" + search, PYTHON, "-m", "pytest", "-q", "--noconftest", "-p", "memprof.pytest_plugin",
                   "-p", "no:cacheprovider", "--memprof", "--memprof-baseline", path, "--memprof-update", "-k", TORCH_CLASSES, TORCH_FILE]
        suite.run(command, expect=None)  # a test may fail by itself
        with open(path) as file:
            return {test: (found["peak"], found["left"]) for test, found in json.load(file)["tests"].items() if found["peak"] > 0}

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        runs = list(threads.map(run, range(RUNS)))
    passed = set.intersection(*map(set, runs))
    share, test = apart([{test: found[test] for test in sorted(passed)} for found in runs])
    suite.figure(f"peaks of requested bytes of {len(passed)} of PyTorch's tests in {RUNS} runs, most apart", f"{100 * share:.3f} % {test}", "1 %")
    if len(passed) < LEAST or share > 0.01:
        raise Failed(f"{test}: peaks differ by {100 * share:.2f} %, of {len(passed)} tests that passed in each run")
