"""A pytest plugin: writes each test's outcome to $PYTEST_OUTCOMES as soon as it is known, and runs a share of the tests.

JUnit XML is written when all tests are over. A run that is cut off has its outcomes here: a JSON line
[test, kind, message] each, of kind pass, fail or skip, after one of kind start. A test that fails at
teardown has one more, and a test in which the process dies has only its start.

$PYTEST_SHARE says which tests this process runs: "serial", those with that mark, or "I/N", each Nth of
the others from the Ith on. Tests that have a line already are left out, so that the process may be started
again where another one died. $PYTEST_GATE is a file without which no test begins.
"""

import json
import os
import time

import pytest


def outcomes_file():
    return os.environ.get("PYTEST_OUTCOMES")


def name_of(nodeid):
    return "::".join(nodeid.split("::")[-2:])


def share(items, wanted, seen):
    """The items of a share, by what $PYTEST_SHARE says, that have no line yet."""
    if wanted:
        serial = [item for item in items if item.get_closest_marker("serial")]
        others = [item for item in items if not item.get_closest_marker("serial")]
        if wanted == "serial":
            items = serial
        else:
            first, every = map(int, wanted.split("/"))
            items = others[first::every]
    return [item for item in items if name_of(item.nodeid) not in seen]


def seen(path):
    if not path or not os.path.exists(path):
        return set()
    with open(path) as f:
        return {json.loads(line)[0] for line in f if line.endswith("\n")}


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config, items):
    kept = share(items, os.environ.get("PYTEST_SHARE"), seen(outcomes_file()))
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


def pytest_collection_finish():
    gate = os.environ.get("PYTEST_GATE")
    while gate and not os.path.exists(gate):
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


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    kind = {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome]
    write(report.nodeid, kind, first_line(report) if kind == "fail" else "")
