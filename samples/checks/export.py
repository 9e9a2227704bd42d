"""Exports to other tools, and `memprof top` on a recording in progress."""

import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
from importlib.util import find_spec

from checks.suite import HERE, Failed, case

# A few steps of a small model, with a tensor that stays. Prints torch's own greatest sum.
JOB = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = torch.ones(3_000_000, device="cuda")
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(512, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""


def device_of(suite, directory):
    for process in suite.report(directory)["processes"]:
        if process["devices"]:
            return process["process"], process["devices"][0]
    raise Failed("no process used a device")


@case
def export_snapshot(suite):
    """torch's own _memory_viz reads the exported snapshot, and its sums are those of the report."""
    directory, _ = suite.record("snapshot", suite.script("snapshot", JOB), "--stacks", "python")
    process, device = device_of(suite, directory)
    path = os.path.join(suite.work, "snapshot.pickle")
    suite.run([suite.memprof, "export", "torch-snapshot", directory, "--process", process, "-o", path])
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    from torch.cuda import _memory_viz

    for name in ("segments", "memory"):
        lines = getattr(_memory_viz, name)(snapshot, format_flamegraph=lambda text: text)
        if "active_allocated" not in lines or ".py:" not in lines:
            raise Failed(f"_memory_viz.{name} shows no live block with a Python frame:\n{lines[:500]}")
    for name in ("segsum", "trace", "trace_plot", "segment_plot"):
        if not getattr(_memory_viz, name)(snapshot):
            raise Failed(f"_memory_viz.{name} is empty")
    live = greatest = 0
    for entry in snapshot["device_traces"][0]:
        live += {"alloc": entry["size"], "free_requested": -entry["size"]}.get(entry["action"], 0)
        greatest = max(greatest, live)
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    want = (device["max_requested"], device["final"]["requested"], device["final"]["reserved"])
    if (greatest, live, reserved) != want:
        raise Failed(f"greatest, last requested and reserved bytes are {(greatest, live, reserved)} in the snapshot, {want} in the report")


@case
def export_formats(suite):
    """pprof and CSV of a recording of torch."""
    directory, _ = suite.record("formats", suite.script("formats", JOB), "--stacks", "python")
    _, device = device_of(suite, directory)
    events = sum(process["events"] for process in json.loads(suite.run([suite.memprof, "verify", "--json", directory]).stdout)["processes"])
    rows = len(list(csv.reader(io.StringIO(suite.run([suite.memprof, "export", "csv", directory]).stdout)))) - 1
    if rows != events:
        raise Failed(f"{rows} rows of CSV, {events} events verified")
    for format, options in (("pprof", []), ("pprof", ["--at", "end", "--by", "module"])):
        path = os.path.join(suite.work, "out." + format)
        suite.run([suite.memprof, "export", format, directory, "-o", path, *options])
        if os.path.getsize(path) < 100:
            raise Failed(f"{format} {options}: {os.path.getsize(path)} bytes")
    if device["allocs"] < 50:
        raise Failed(f"only {device['allocs']} allocations were recorded")


def readme_lines():
    """The lines of the README that read a recording with pandas or Polars, each with the libraries it needs."""
    with open(os.path.join(os.path.dirname(HERE), "README.md")) as file:
        found = re.findall(r'^ {4}python3 -c "(.*)"$', file.read(), re.M)
    needed = {"pandas": ["pandas", "pyarrow"], "polars": ["polars"]}
    lines = {name: [line for line in found if name in line] for name in needed}
    for name, those in lines.items():
        if len(those) != 1:
            raise Failed(f"{len(those)} lines of the README are about {name}, 1 expected")
    return [(needed[name], lines[name][0]) for name in needed]


def sums_of(kinds, printed):
    """From a printed table: the last number of the line of each kind."""
    sums = {}
    for line in printed.splitlines():
        words = re.findall(r"[\w-]+", line)
        if words and words[0] in kinds and words[-1].isdigit():
            sums[words[0]] = int(words[-1])
    return sums


@case
def readme_python(suite):
    """The README's lines for pandas and Polars give the same sums as the exported CSV."""
    ranked = ["env", "RANK=0", "WORLD_SIZE=1", *suite.script("ranked", JOB)]
    directory, _ = suite.record("run", ranked)
    sums = {}
    for row in csv.DictReader(io.StringIO(suite.run([suite.memprof, "export", "csv", directory]).stdout)):
        sums[row["kind"]] = sums.get(row["kind"], 0) + int(row["requested"])
    parts = [name for name in os.listdir(directory) if name.startswith("rank0-")]
    if len(parts) != 1 or not sums.get("alloc"):
        raise Failed(f"{len(parts)} parts of rank 0, 1 expected; the sums are {sums}")
    for libraries, line in readme_lines():
        missing = [name for name in libraries if find_spec(name) is None]
        if missing:
            suite.lines.append(f"  left out, as there is no {' and no '.join(missing)} here: {line}")
            continue
        # The line reads the folder run of the working directory. The variables keep Polars from shortening its tables.
        env = dict(os.environ, POLARS_FMT_MAX_ROWS="-1", POLARS_FMT_MAX_COLS="-1")
        done = subprocess.run([sys.executable, "-c", line], cwd=suite.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        found = sums_of(sums, done.stdout)
        if done.returncode != 0 or found != sums:
            raise Failed(f"{line}\nexit {done.returncode}: {found}, but the CSV has {sums}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


@case
def top_live(suite):
    """`memprof top`, in another process, shows the job's memory while it runs, and NVML's reading of the card."""
    script = suite.script("live", JOB + "\nimport sys, time\nprint('ready', flush=True)\ntime.sleep(8)\n")
    directory = os.path.join(suite.work, "live")
    record = subprocess.Popen(
        [suite.memprof, "record", "-q", "--force", "-o", directory, "--", *script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if record.stdout.readline().strip() != "ready":
            raise Failed(f"the job did not come up: {record.communicate()[1][-2000:]}")
        time.sleep(0.5)
        look = json.loads(suite.run([suite.memprof, "top", "--once", "--json", directory]).stdout)
        lines = suite.run([suite.memprof, "top", "--interval", "500ms", directory]).stdout
    finally:
        record.wait(timeout=60)
    devices = [device for process in look["processes"] for device in process["devices"]]
    if look["ended"] or not devices or devices[0]["requested"] < 12_000_000 or devices[0]["reserved"] < devices[0]["requested"]:
        raise Failed(f"the look while it ran: {look}")
    used = [card["used"] for card in look["cards"]]
    if not used or used[0] is None or used[0] < devices[0]["reserved"]:
        raise Failed(f"the card has {used} in use, the job alone {devices[0]['reserved']}")
    if "the recording has ended" not in lines:
        raise Failed(f"top did not see the end:\n{lines[-1000:]}")
    _, device = device_of(suite, directory)
    if device["final"]["reserved"] != devices[0]["reserved"]:
        raise Failed(f"reserved is {devices[0]['reserved']} while it slept, {device['final']['reserved']} at the end")


@case
def check_run(suite):
    """`memprof check --run`: the job's exit code, and that of violated gates."""
    job = ["--", *suite.script("gated", JOB)]
    directory = os.path.join(suite.work, "gated")
    check = [suite.memprof, "check", "--run", "-q", "--force", "-o", directory]
    done = suite.run([*check, "-g", "reserved.peak < 100GiB", "-g", "oom.count == 0", *job])
    if "reserved.peak" not in done.stdout or "VIOLATED" in done.stdout:
        raise Failed(done.stdout)
    suite.run([*check, "-g", "requested.peak < 1MiB", *job], expect=1)
    failing = suite.script("gated-failing", JOB + "\nraise SystemExit(7)\n")
    suite.run([*check, "-g", "requested.peak < 1MiB", "--", *failing], expect=7)
