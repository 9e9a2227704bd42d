"""The pytest plugin: what each test requests of GPU memory.

    pytest --memprof                          # per test, the peak of requested bytes and what the test left behind
    pytest --memprof --memprof-baseline gpu.json
    pytest --memprof-dry-run                  # the same without a GPU, of requests on tensors without values

    @pytest.mark.gpu_memory("2 GiB", leak=0)
    def test_step(): ...

Installed as the wheel, pytest finds it; elsewhere `-p memprof.pytest_plugin` names it. Bytes are those that torch's allocator,
or memprof's in its place, counts as requested. They depend on no timing: before it counts, the plugin collects garbage, waits
for the devices, and has torch drop cuBLAS' workspaces, so that each test that uses one requests it.

A test is measured from before its own fixtures to after them, on top of what was live then: fixtures of modules and sessions
are of no test, unless a test asks for one at run time. A test that resets torch's peak itself is measured from its last reset.
"""

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

PEAK, LEFT = "gpu_memory.peak", "gpu_memory.left"  # names of user_properties, also in JUnit files
CURRENT, COUNTED = "requested_bytes.all.current", "requested_bytes.all.peak"  # of torch's statistics
WRONG = "GPU memory: "  # begins the text of a failure by memory
TOLERANCE = "2%"
MOST_ANNOTATIONS = 10  # that GitHub shows for a step
MOST_ROWS = 100  # that are printed without -v


def pytest_addoption(parser):
    group = parser.getgroup("memprof", "GPU memory (memprof)")
    group.addoption("--memprof", action="store_true", help="print each test's peak of requested GPU memory, and what it left behind; check gpu_memory marks")
    group.addoption("--memprof-dry-run", action="store_true", help="measure without a GPU: run the tests under `memprof record --dry-run`")
    group.addoption("--memprof-card", metavar="CARD", help="with --memprof-dry-run: the card that the tests see, such as H100-80GB")
    group.addoption("--memprof-baseline", metavar="FILE", help="fail tests that need more than in this file, which is written if it does not exist")
    group.addoption("--memprof-update", action="store_true", help="write what passed into the baseline in place of comparing")
    group.addoption("--memprof-tolerance", metavar="SHARE", default=TOLERANCE, help="how much more than the baseline's a peak may be (default: 2%%)")


def pytest_configure(config):
    config.addinivalue_line("markers", 'gpu_memory(limit, leak=None): fail if the test\'s peak of requested GPU memory is above limit ("2 GiB"), or if it leaves more than leak behind')
    option = config.option
    if option.memprof or option.memprof_dry_run:
        config.pluginmanager.register(Plugin(config), "memprof-measured")
    elif option.memprof_baseline or option.memprof_update:
        raise pytest.UsageError("--memprof-baseline and --memprof-update need --memprof")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Starts pytest again under a dry run, which needs the hook and a simulated driver from the start of the process."""
    if not config.option.memprof_dry_run or _dry() or hasattr(config, "workerinput") or config.option.help:
        return None
    memprof = os.environ.get("MEMPROF") or shutil.which("memprof") or os.path.join(os.path.dirname(sys.executable), "memprof")
    if not os.path.exists(memprof):
        raise pytest.UsageError("--memprof-dry-run: no memprof on the PATH: set $MEMPROF to it")
    card = ["--card", config.option.memprof_card] if config.option.memprof_card else []
    with tempfile.TemporaryDirectory() as folder:
        command = [memprof, "record", "--quiet", "--dry-run", "--iterations", "0", *card, "-o", os.path.join(folder, "run"), "--"]
        command += [sys.executable, "-m", "pytest", *map(str, config.invocation_params.args)]
        return subprocess.call(command, cwd=str(config.invocation_params.dir))


def _dry():
    return bool(os.environ.get("MEMPROF_DRY_RUN"))


class Meter:
    """Requested bytes of the devices, of one test."""

    def __init__(self):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):  # the frames of a test that failed hold its tensors
            vars(sys).pop(name, None)
        self._base = _settled()
        for device in range(len(self._base)):
            sys.modules["torch"].cuda.reset_peak_memory_stats(device)

    def peak(self):
        """The greatest increase of a device so far."""
        return max([stats[COUNTED] - base for stats, base in self._with_base(_stats())] or [0])

    def left(self):
        """How much more all devices hold than at the begin. It is below 0 where a test freed what others had made."""
        return sum(now - base for now, base in self._with_base(_settled()))

    def _with_base(self, values):
        return [(value, self._base[i] if i < len(self._base) else 0) for i, value in enumerate(values)]


def _stats():
    """torch's statistics of each device; none before torch uses CUDA, or if its allocator does not count requested bytes."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    found = [torch.cuda.memory_stats(device) for device in range(torch.cuda.device_count())]
    return found if all(COUNTED in stats for stats in found) else []


def _settled():
    """The bytes that each device holds when nothing is under way and nothing waits to be collected."""
    gc.collect()
    torch = sys.modules.get("torch")
    for device, stats in enumerate(_stats()):
        if stats["requested_bytes.all.allocated"] or stats[CURRENT]:  # else the device is not in use, and a call would begin that
            torch.cuda.synchronize(device)
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.empty(1, device="cuda:%d" % device)  # a request has the allocator look for blocks that other streams have finished with
    return [stats[CURRENT] for stats in _stats()]


class Plugin:
    def __init__(self, config):
        self.config = config
        self.rows = {}  # nodeid: (peak, left), without left where a test did not pass; in the controller of xdist of all workers
        self.broken = []  # (path, line, nodeid, text): what failed by its memory
        self._tolerance = _share(config.option.memprof_tolerance)
        self._file = config.option.memprof_baseline
        self._baseline = None
        if self._file and os.path.exists(self._file) and not config.option.memprof_update:
            self._baseline = _read_baseline(self._file)

    @pytest.fixture(autouse=True)
    def _memprof_meter(self, request):
        """Measures a test. Fixtures of plugins that are for every test are set up first of a test's own, and end last."""
        item = request.node
        meter = item._memprof_meter = Meter()
        yield
        if getattr(item, "funcargs", None):
            item.funcargs.clear()  # they hold what fixtures returned
        item.user_properties.append((PEAK, meter.peak()))
        if getattr(item, "_memprof_passed", False):  # else the traceback holds what the test had
            item.user_properties.append((LEFT, meter.left()))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        report = outcome.get_result()
        meter = getattr(item, "_memprof_meter", None)
        if meter is None:
            return
        if call.when == "call":
            item._memprof_passed = report.passed  # whatever comes of its peak
            if _dry() and report.failed and call.excinfo.errisinstance(AssertionError):
                path, line, _ = item.location
                report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, "memprof: a dry run has no values to assert")
            elif report.passed and measured():
                self._judge(item, report, {PEAK: meter.peak()})
        elif call.when == "teardown":
            found = dict(item.user_properties)
            if report.passed and LEFT in found and measured():
                self._judge(item, report, found)
            del item._memprof_meter

    def _judge(self, item, report, found):
        wrong = list(self._wrong(item, found))
        if wrong:
            report.outcome, report.longrepr = "failed", WRONG + "; ".join(wrong)

    def _wrong(self, item, found):
        """What is above a limit, in words."""
        peak, left = found[PEAK], found.get(LEFT)
        mark = item.get_closest_marker("gpu_memory")
        if mark is not None:
            limit, leak = _of_mark(*mark.args, **mark.kwargs)
            if left is None and limit is not None and peak > limit:
                yield "the peak of requested bytes is %s, %s above the limit of %s" % (_size(peak), _size(peak - limit), _size(limit))
            if left is not None and leak is not None and left > leak:
                yield "%s left behind, %s allowed" % (_size(left), _size(leak))
        before = (self._baseline or {}).get(item.nodeid)
        if before is None:
            return
        if left is None and peak > before["peak"] * (1 + self._tolerance):
            more = "%+.1f %%" % (100 * (peak / before["peak"] - 1)) if before["peak"] else "from 0 B"
            yield "the peak of requested bytes is %s, %s in the baseline: %s" % (_size(peak), _size(before["peak"]), more)
        if left is not None and left > max(0, before["left"]):
            yield "%s left behind, %s in the baseline" % (_size(left), _size(before["left"]))

    def pytest_runtest_logreport(self, report):
        found = dict(report.user_properties)
        if report.failed and isinstance(report.longrepr, str) and report.longrepr.startswith(WRONG):
            path, line, _ = report.location
            self.broken.append((path, (line or 0) + 1, report.nodeid, report.longrepr[len(WRONG):]))
        if report.when == "teardown" and PEAK in found:
            self.rows[report.nodeid] = found[PEAK], found.get(LEFT)

    def pytest_terminal_summary(self, terminalreporter):
        tr = terminalreporter
        if hasattr(self.config, "workerinput"):
            return
        seen = self.rows.values()
        if not any(peak or left for peak, left in seen) and not measured():
            tr.write_line("memprof: no GPU here whose requested bytes torch counts, so nothing is measured (--memprof-dry-run needs none)")
            return
        tr.section("GPU memory: requested at the peak, left behind" + (", of a dry run" if _dry() else ""))
        rows = sorted(self.rows.items(), key=lambda row: (-row[1][0], row[0]))
        shown = rows if self.config.option.verbose > 0 else rows[:MOST_ROWS]
        for nodeid, (peak, left) in shown:
            tr.write_line("%10s  %10s  %s" % (_size(peak), "-" if left is None else _size(left), nodeid))
        if len(shown) < len(rows):
            tr.write_line("and %d tests more: -v prints all" % (len(rows) - len(shown)))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for path, line, nodeid, text in self.broken[:MOST_ANNOTATIONS]:
                tr.write_line("::error file=%s,line=%d,title=%s::%s" % (_property(path), line, _property("memprof: " + nodeid), _text(text)))
        self._write_baseline(tr)

    def _write_baseline(self, tr):
        """Writes what passed, and keeps what other runs had written, if there is no baseline or it is to be updated."""
        if not self._file or self._baseline is not None:
            return
        tests = _read_baseline(self._file) if os.path.exists(self._file) else {}
        tests.update({nodeid: {"peak": peak, "left": left} for nodeid, (peak, left) in self.rows.items() if left is not None})
        part = "%s.%d" % (self._file, os.getpid())
        with open(part, "w") as file:
            json.dump({"memprof": 1, "tests": tests}, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(part, self._file)
        tr.write_line("memprof: wrote the baseline %s, of %d tests" % (self._file, len(tests)))


def measured():
    """Whether requested bytes are counted: by a GPU's allocator, or in a dry run. Without torch there is nothing to count."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return False
    return bool(_stats()) or not torch.cuda.is_initialized()


def _read_baseline(path):
    try:
        with open(path) as file:
            tests = json.load(file)["tests"]
        if all(isinstance(test["peak"], int) and isinstance(test["left"], int) for test in tests.values()):
            return tests
        raise ValueError("peak and left are not whole numbers")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise pytest.UsageError("--memprof-baseline %s: no baseline of this plugin: %s: %s" % (path, type(error).__name__, error))


def _of_mark(limit=None, leak=None):
    """The bytes of a gpu_memory mark."""
    return (None if limit is None else _bytes(limit)), (None if leak is None else _bytes(leak))


_UNITS = {"": 1, "b": 1, **{unit + "ib": 1024 ** (i + 1) for i, unit in enumerate("kmgt")}, **{unit + "b": 1000 ** (i + 1) for i, unit in enumerate("kmgt")}}


def _bytes(size):
    """The bytes of a size, as memprof takes them: 2 GiB, 500MB, or a number."""
    found = re.match(r"^\s*([0-9]+(?:\.[0-9]*)?)\s*([a-z]*)\s*$", str(size).lower())
    if found is None or found.group(2) not in _UNITS:
        raise pytest.UsageError("gpu_memory(%r): want bytes, or a size like 2 GiB or 500 MB" % (size,))
    return int(float(found.group(1)) * _UNITS[found.group(2)])


def _share(text):
    found = re.match(r"^([0-9]+(?:\.[0-9]*)?)%$", text)
    if found is None:
        raise pytest.UsageError("--memprof-tolerance %s: want a share like 2%%" % text)
    return float(found.group(1)) / 100


def _size(value):
    sign, value = ("-" if value < 0 else ""), abs(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return "%s%.4g %s" % (sign, value, unit)
        value /= 1024


def _text(value):
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value):
    return _text(value).replace(":", "%3A").replace(",", "%2C")
