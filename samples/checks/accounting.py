"""Device accounting: how much of the used memory that the driver reports is explained by events."""

import json
import os
import subprocess

from checks.suite import PYTHON, Failed, alone

MIB = 2**20
UNEXPLAINED = 0.02  # of what is used, at most


def accounts(suite, directory):
    """The device accounting of each process that reserved memory, by process."""
    found = {}
    for process in suite.report(directory)["processes"]:
        for device in process["devices"]:
            if device["accounting"] is None:
                raise Failed(f"{process['process']}: the report has no accounting for device {device['device']}")
            if device["max_reserved"] > 0:
                found[process["process"]] = device["accounting"]
    if not found:
        raise Failed(f"no process of {directory} has reserved memory")
    return found


def shown(name, account):
    return f"{name}: {json.dumps(account)}"


def demand(name, account):
    """Checks that the parts add up to used, and, where the process itself was read, that unexplained is small."""
    peak = account["peak"]
    if account["missing"] is not None or peak["used"] is None:
        raise Failed(f"no reading of used memory ({account['missing']}); {shown(name, account)}")
    if peak["context_is_all"]:
        raise Failed(f"the context was not measured by NVML; {shown(name, account)}")
    if peak["explained"] + peak["rest"] != peak["used"]:
        raise Failed(f"the accounting does not add up; {shown(name, account)}")
    if sum(library["bytes"] for library in peak["libraries"]) != peak["other_libraries"]:
        raise Failed(f"libraries by name are not their sum; {shown(name, account)}")
    if account["scope"] != "process":
        if peak["unexplained"] is not None:
            raise Failed(f"the whole card was read, and the unexplained memory of one process is given; {shown(name, account)}")
        return
    if peak["unexplained"] is None:
        raise Failed(f"unexplained is unknown: {peak['unexplained_unknown']}; {shown(name, account)}")
    terms = ["requested", "internal", "pending", "stranded", "reserve", "reusable", "external", "other_libraries", "driver_overhead", "pools", "unexplained"]
    if sum(peak[term] for term in terms) != peak["used"]:
        raise Failed(f"the parts do not add up; {shown(name, account)}")
    if peak["context"] <= 0:
        raise Failed(f"no context was measured; {shown(name, account)}")
    if peak["unexplained_share"] > UNEXPLAINED:
        raise Failed(f"{peak['unexplained_share']:.1%} of used is unexplained, at most {UNEXPLAINED:.0%} may be; {shown(name, account)}")


def figure(suite, name, account):
    peak = account["peak"]
    if peak["unexplained"] is None or peak["driver_overhead"] is None:
        suite.figure(f"{name}: unexplained of used at the peak ({account['scope']})", f"unknown: {peak['unexplained_unknown']}", f"{UNEXPLAINED:.0%}")
        return
    suite.figure(
        f"{name}: unexplained of used at the peak ({account['scope']})",
        f"{peak['unexplained_share']:.2%} ({peak['unexplained'] / MIB:.1f} of {peak['used'] / MIB:.0f} MiB), "
        f"driver overhead {peak['driver_overhead'] / MIB:.0f} MiB, other libraries {peak['other_libraries'] / MIB:.0f} MiB, "
        f"read {peak['read_after_ns'] / 1e6:.0f} ms after" + ("" if peak["steady"] else ", not steady"),
        f"{UNEXPLAINED:.0%}",
    )


def accounting_of_sample(suite, name):
    directory, _ = suite.record("accounting-" + name, suite.job(name))
    for process, account in accounts(suite, directory).items():
        if account["peak"]["used"] is not None:
            figure(suite, name, account)
        demand(f"{name}, {process}", account)
    own = account["scope"] == "process"
    suite.run([suite.memprof, "check", directory, "--gate", "used.peak > 512MiB"])
    suite.run([suite.memprof, "check", directory, "--gate", "accounting.unexplained <= 2%"], expect=0 if own else 2)
    suite.run([suite.memprof, "check", directory, "--gate", "accounting.driver_overhead < 1MiB"], expect=1 if own else 2)
    readings = suite.verified(directory)["readings"]
    if readings is None or not readings["ok"] or readings["events"] < 4:
        raise Failed(f"{name}: the readings do not verify: {readings}")


@alone
def accounting_alexnet(suite):
    accounting_of_sample(suite, "alexnet")


@alone
def accounting_resnet50(suite):
    accounting_of_sample(suite, "resnet50")


@alone
def accounting_gpt2(suite):
    accounting_of_sample(suite, "gpt2")


# Allocates memory that no interposition sees: it finds the driver's function in the library's symbol
# table and calls it at its address.
HIDING = """
import ctypes, struct, sys, time
import torch

def address(library, name):
    path, base = None, None
    for line in open("/proc/self/maps"):
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and library in fields[5].rsplit("/", 1)[-1] and int(fields[2], 16) == 0:
            path, base = fields[5].strip(), int(fields[0].split("-")[0], 16)
            break
    if path is None:
        raise SystemExit(library + " is not mapped")
    data = open(path, "rb").read()
    table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    for section in sections:
        if section[1] != 11:  # the dynamic symbols
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            start, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if value and data[names + start:data.index(b"\\0", names + start)] == name.encode():
                return base + value
    raise SystemExit(f"{path} has no {name}")

hidden = int(sys.argv[1])
x = torch.ones(64 * 2**20, device="cuda")
torch.cuda.synchronize()
time.sleep(1)
if hidden:
    allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(address("libcuda.so", "cuMemAlloc_v2"))
    pointer = ctypes.c_uint64()
    code = allocate(ctypes.byref(pointer), hidden)
    assert code == 0, f"cuMemAlloc_v2: {code}"
y = torch.ones(64 * 2**20, device="cuda")  # the peak comes after it
torch.cuda.synchronize()
time.sleep(1)
print("done")
"""


@alone
def accounting_hidden(suite):
    """64 MiB that the hook does not see appear as 64 MiB more unexplained."""
    job = suite.script("hiding", HIDING)
    unexplained = {}
    for hidden in (0, 64 * MIB):
        directory, _ = suite.record(f"hidden-{hidden}", [*job, str(hidden)])
        ((process, account),) = accounts(suite, directory).items()
        for instant in ("peak", "end"):
            if account[instant]["used"] is None:
                raise Failed(f"no reading at the {instant}; {shown(process, account)}")
            unexplained[hidden, instant] = account[instant]["rest"]  # no other process uses the card
        if not account["peak"]["steady"]:
            raise Failed(f"no event for a second after the peak, and no reading in that second; {shown(process, account)}")
    for instant in ("peak", "end"):
        appeared = unexplained[64 * MIB, instant] - unexplained[0, instant]
        suite.figure(f"hidden 64 MiB: more unexplained at the {instant}", f"{appeared / MIB:.1f} MiB", "64 ± 4 MiB")
        if abs(appeared - 64 * MIB) > 4 * MIB:
            raise Failed(f"64 MiB were hidden, {appeared / MIB:.1f} MiB more are unexplained at the {instant}: {unexplained}")


# Starts a second process on the same GPU when the first has its memory; both hold it then.
TWO = """
import os, subprocess, sys, time
import torch
number = int(sys.argv[1])
x = torch.ones(128 * 2**20, device="cuda")
torch.cuda.synchronize()
time.sleep(0.5)
if number > 1:
    subprocess.run([sys.executable, __file__, str(number - 1)], check=True)
else:
    time.sleep(1)
y = torch.ones(1000, device="cuda")  # memory grows after the other process's last event: the peak
time.sleep(0.5)  # NVML is read meanwhile
print("done", number)
"""


@alone
def accounting_two_processes(suite):
    """Two processes on one GPU: each by itself where the driver lists processes, else their sum."""
    job = suite.script("two", TWO)
    directory, _ = suite.record("two", [*job, "2"])
    found = accounts(suite, directory)
    if len(found) != 2:
        raise Failed(f"two processes expected, found {sorted(found)}")
    for process, account in found.items():
        if account["peak"]["used"] is not None:
            figure(suite, f"two processes, {process}", account)
        demand(process, account)
        shared = account["scope"] == "device"
        if shared != (len(account["processes"]) == 2):
            raise Failed(f"the scope and the processes disagree; {shown(process, account)}")
        at_least = 512 * MIB * (2 if shared else 1)
        if account["peak"]["requested"] < at_least:
            raise Failed(f"tensors are less than {at_least} bytes; {shown(process, account)}")


@alone
def accounting_without_cuda(suite):
    """A job that never uses the GPU ends with its own code, and its recording has nothing to report."""
    directory = os.path.join(suite.work, "no-gpu")
    done = suite.run([suite.memprof, "record", "--force", "-o", directory, "--", PYTHON, "-c", "import sys; sys.exit(3)"], expect=3)
    if "no event was recorded" not in done.stderr:
        raise Failed(done.stderr)
    suite.run([suite.memprof, "report", directory], expect=2)


# Allocates 16 GiB within a second and a half, frees them, and begins again.
RESTLESS = """
import time
import torch
print("ready", flush=True)
while True:
    kept = []
    for _ in range(64):
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
        time.sleep(0.02)
    del kept
    torch.cuda.empty_cache()
"""

QUIET = """
import time
import torch
x = torch.ones(2**20, device="cuda")
torch.cuda.synchronize()
time.sleep(0.5)
print("done")
"""


def context_of(suite, name):
    """The accounting at the peak of a process that has little but its CUDA context."""
    directory, _ = suite.record(name, suite.script(name, QUIET))
    ((process, account),) = accounts(suite, directory).items()
    return account["scope"], account["peak"], shown(process, account)


@alone
def accounting_beside_other_process(suite):
    """The size of a context does not change when another process allocates while it is made."""
    scope, alone_peak, text = context_of(suite, "context-alone")
    other = subprocess.Popen(suite.script("restless", RESTLESS), stdout=subprocess.PIPE, text=True)
    try:
        if other.stdout.readline() != "ready\n":
            raise Failed("the other process did not start")
        found = [context_of(suite, f"context-beside-{i}") for i in range(3)]
    finally:
        other.kill()
        other.wait()
    sizes = [peak["context"] for _, peak, _ in found]
    if scope != "process":  # the driver lists no processes, so the growth of the card's use is not the context's size
        for size, (_, _, text) in zip(sizes, found):
            if size is not None:
                raise Failed(f"the driver does not list processes, and a context size is given; {text}")
        return
    suite.figure(
        "context beside a process that takes 11 GiB a second",
        ", ".join(f"{size / MIB:.0f}" for size in sizes) + f" MiB, {alone_peak['context'] / MIB:.0f} MiB alone, measured by {scope}",
        "16 MiB more or less",
    )
    for _, peak, text in [(scope, alone_peak, text), *found]:
        if peak["context_of_device"] or peak["context_is_all"] or peak["context_refuted"]:
            raise Failed(f"the driver lists processes, and the context was measured by the device's use; {text}")
        if peak["driver_overhead"] is None or abs(peak["driver_overhead"] - alone_peak["driver_overhead"]) > 16 * MIB:
            raise Failed(f"driver overhead differs from that of the process alone, {alone_peak['driver_overhead']}: {peak['driver_overhead']}; {text}")
        if abs(peak["context"] - alone_peak["context"]) > 16 * MIB:
            raise Failed(f"the context is {peak['context'] / MIB:.0f} MiB, alone {alone_peak['context'] / MIB:.0f}; {text}")
