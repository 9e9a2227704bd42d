"""A pytest plugin: writes each test's outcome to $PYTEST_OUTCOMES as soon as it is known, and runs a share of the tests.

JUnit XML is written when all tests are over. A run that is cut off has its outcomes here: a JSON line
[test, kind, message] each, of kind pass, fail or skip, after one of kind start. A test that fails at
teardown has one more, and a test in which the process dies has only its start.

$PYTEST_SHARE says which tests this process runs: "serial", those with that mark and those of ALONE, or "I/N",
each Nth of the others from the Ith on. Tests that have a line already, there or in $PYTEST_SEEN, are left out, so
that the process may be started again where another one died, and a run continued that was cut off. Once the tests are collected, the process makes the file $PYTEST_READY, and
it begins with them when there is a file $PYTEST_GO.

What a failed test leaves behind is freed before the next one, which would find its tensors otherwise, or see
them vanish: its traceback has them, until Python collects garbage at a time of its own.
"""

import gc
import json
import os
import sys
import time

import pytest

# They read what all processes together use of a card, or expect the host to be quicker than a kernel of 30 ms.
ALONE = {
    "TestCudaMallocAsync::test_device_memory_used",
    "TestCudaMultiGPU::test_mem_get_info",
    "TestCudaMultiGPU::test_cuda_memory_leak_detection",
    "TestCudaMultiGPU::test_streams_multi_gpu_query",
}


def outcomes_file():
    return os.environ.get("PYTEST_OUTCOMES")


def name_of(nodeid):
    return "::".join(nodeid.split("::")[-2:])


def share(items, wanted, seen):
    """The items of a share, by what $PYTEST_SHARE says, that have no line yet."""
    if wanted:
        marked = [item for item in items if item.get_closest_marker("serial")]
        others = [item for item in items if not item.get_closest_marker("serial")]
        if wanted == "serial":
            items = marked + [item for item in others if name_of(item.nodeid) in ALONE]
        else:
            first, every = map(int, wanted.split("/"))
            items = [item for item in others[first::every] if name_of(item.nodeid) not in ALONE]
    return [item for item in items if name_of(item.nodeid) not in seen]


def seen(path):
    if not path or not os.path.exists(path):
        return set()
    with open(path) as f:
        return {json.loads(line)[0] for line in f if line.endswith("\n")}


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config, items):
    kept = share(items, os.environ.get("PYTEST_SHARE"), seen(outcomes_file()) | seen(os.environ.get("PYTEST_SEEN")))
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


def pytest_collection_finish():
    ready, go = os.environ.get("PYTEST_READY"), os.environ.get("PYTEST_GO")
    if ready:
        open(ready, "w").close()
    while go and not os.path.exists(go):
        time.sleep(0.05)


def write(nodeid, kind, message=""):
    path = outcomes_file()
    if path:
        with open(path, "a") as f:
            f.write(json.dumps([name_of(nodeid), kind, message]) + "\n")


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr or "")).split())[:200]


def pytest_runtest_logstart(nodeid):
    write(nodeid, "start")


failed = set()


def pytest_runtest_logfinish(nodeid):
    if nodeid in failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        gc.collect()


def pytest_runtest_logreport(report):
    if report.outcome == "failed":
        failed.add(report.nodeid)
    if report.when != "call" and report.outcome == "passed":
        return
    kind = {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome]
    write(report.nodeid, kind, first_line(report) if kind == "fail" else "")
