"""Used memory without NVML: each process reads it by itself."""

import json
import os

from checks.accounting import accounts, shown
from checks.suite import Failed, alone

MIB = 2**20

# A capture in the strictest mode that lasts for several readings, and allocates.
CAPTURE = '''
import time, torch
x = torch.arange(64 << 20, device="cuda", dtype=torch.float32)
torch.cuda.synchronize()
time.sleep(0.3)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode="global"):
    y = x * 2
    time.sleep(0.35)
    z = y.repeat(2) + 1
    time.sleep(0.35)
graph.replay()
torch.cuda.synchronize()
time.sleep(0.3)
print("result", z[5].item(), z[-1].item())
'''


def hide_nvml(suite):
    """The start of a command under which NVML cannot be loaded: the loader finds a text file in its place."""
    folder = os.path.join(suite.work, "no-nvml")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "libnvidia-ml.so.1"), "w") as f:
        f.write("no library\n")
    rest = os.environ.get("LD_LIBRARY_PATH")
    return ["env", "LD_LIBRARY_PATH=" + folder + (":" + rest if rest else "")]


def record_without_nvml(suite, name, command, *flags):
    directory = os.path.join(suite.work, name)
    done = suite.run([*hide_nvml(suite), suite.memprof, "record", "--force", "-o", directory, *flags, "--", *command])
    with open(os.path.join(directory, "run.json")) as f:
        readings = json.load(f)["options"]["readings"]
    if not readings.startswith("cuMemGetInfo: "):
        raise Failed(f"{name}: NVML was not hidden: readings are {readings!r}")
    if "native" not in flags:  # recordings of torch's own allocator cannot be verified
        suite.verified(directory)
    found = accounts(suite, directory)
    if len(found) != 1:
        raise Failed(f"{name}: one process uses the card, and there is an accounting of {sorted(found)}")
    account = next(iter(found.values()))
    peak = account["peak"]
    if account["scope"] != "card" or account["missing"] is not None or peak["used"] is None:
        raise Failed(f"the process did not read its card; {shown(name, account)}")
    if peak["unexplained"] is not None or peak["explained"] + peak["rest"] != peak["used"]:
        raise Failed(f"the accounting does not add up; {shown(name, account)}")
    return account, done


@alone
def readings_without_nvml(suite):
    account, _ = record_without_nvml(suite, "readings-alexnet", suite.job("alexnet"))
    peak = account["peak"]
    suite.figure(
        "alexnet, read by the process: rest of used at the peak",
        f"{peak['rest'] / peak['used']:.2%} ({peak['rest'] / MIB:.1f} of {peak['used'] / MIB:.0f} MiB)",
        "",
    )


@alone
def readings_during_captures(suite):
    expected = "result 11.0 134217728.0"
    command = suite.script("readings-capture", CAPTURE)
    for allocator in "bfc", "native":
        name = "readings-capture-" + allocator
        account, done = record_without_nvml(suite, name, command, "--allocator", allocator)
        if expected not in done.stdout:
            raise Failed(f"{name}: printed {done.stdout!r}, want {expected!r}\n{done.stderr[-2000:]}")
        # x, y, what is repeated and what is added to it: 256, 256, 512 and 512 MiB.
        if account["used_peak"] < 1536 * MIB:
            raise Failed(f"no reading saw what was taken during the capture; {shown(name, account)}")
