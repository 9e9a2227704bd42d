"""A pytest plugin: writes each test's outcome to $PYTEST_OUTCOMES as soon as it is known.

JUnit XML is written when all tests are over. A run that is cut off has its outcomes here: a JSON line
[test, kind, message] each, of kind pass, fail or skip. A test that fails at teardown has two.
"""

import json
import os


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr or "")).split())[:200]


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    path = os.environ.get("PYTEST_OUTCOMES")
    if not path or os.environ.get("PYTEST_XDIST_WORKER"):  # the workers' reports reach the process that started them
        return
    kind = {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome]
    test = "::".join(report.nodeid.split("::")[-2:])
    with open(path, "a") as f:
        f.write(json.dumps([test, kind, first_line(report) if kind == "fail" else ""]) + "\n")
