"""Jobs with and without memprof: their results, and the memory that the report names."""

import concurrent.futures
import os
import re

from checks.suite import PYTHON, Failed

MIB = 2**20
TOLERATED = 4  # times the difference between two native runs, for jobs that differ from themselves
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]

# Ends a script that uses torch. Its line is what torch, or the hook in its place, says was requested at most.
PEAK = """
import torch
print("peak", torch.cuda.memory_stats()["requested_bytes.all.peak"], flush=True)
"""


def results(output):
    return sorted(re.findall(r"^result .*$", output, re.M))


def numbers(lines):
    """The lines as a text without numbers, and the numbers in it. Infinity and NaN, which have no distance, are text."""
    text = "\n".join(lines)
    number = r"-?\d+\.?\d*(?:e[-+]?\d+)?"
    return re.sub(number, "#", text), [float(value) for value in re.findall(number, text)]


def distance(lines, others):
    """The greatest relative difference between numbers of two outputs, infinite where their texts differ."""
    (text, values), (other_text, other_values) = numbers(lines), numbers(others)
    if text != other_text:
        return float("inf")
    return max((abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in zip(values, other_values) if a != b), default=0.0)


def judged(name, natives, recorded):
    """Compares the result lines of native runs with those of the recorded one. Returns what was found."""
    if not natives[0]:
        raise Failed(f"{name}: no results")
    spread = max(distance(natives[0], other) for other in natives[1:])
    if spread == float("inf"):
        raise Failed(f"{name}: two native runs print different texts: {natives}")
    found = min(distance(native, recorded) for native in natives)
    if found > TOLERATED * spread:
        raise Failed(f"{name}: recorded differs by {found:.2g}, two native runs by {spread:.2g}: native {natives[0]}, recorded {recorded}")
    return "bit-identical" if recorded in natives else f"{found:.1g} apart, native runs {spread:.1g}"


def side_by_side(suite, name, text, *flags, prefix=None, alone=False, environment=None):
    """Runs a script natively twice and recorded once, at the same time unless `alone`.

    The results must be bit-identical if those of the two native runs are, else within their spread; the
    recording must verify, and its report must name all that the native runs requested from torch.
    Returns the report and the recording's folder.
    """
    command = suite.script(name, text)
    if prefix:
        command = prefix + command[1:]
    if environment:
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
    with concurrent.futures.ThreadPoolExecutor(1 if alone else 3) as pool:
        natives = [pool.submit(suite.run, command, timeout=150) for _ in range(2)]
        recording = pool.submit(suite.record, name, command, *flags)
    natives = [native.result() for native in natives]
    directory, recorded = recording.result()
    suite.lines.append(f"  {name}: {judged(name, [results(native.stdout) for native in natives], results(recorded.stdout))}")
    suite.verified(directory)
    report = suite.report(directory)
    demand_requests(suite, name, natives[0].stdout, recorded.stdout, report)
    return report, directory


def demand_requests(suite, name, native, recorded, report):
    """Checks the greatest requested bytes in the report against what the processes printed, recorded and native."""
    printed = [sorted(int(peak) for peak in re.findall(r"^peak (\d+)$", output, re.M)) for output in (native, recorded)]
    if not printed[0]:
        return
    reported = sorted(device["max_requested"] for process in report["processes"] for device in process["devices"] if device["max_requested"] > 0)
    shown = f"{name}: requested at most: native {printed[0]}, recorded {printed[1]}, in the report {reported}"
    if not len(printed[0]) == len(printed[1]) == len(reported):
        raise Failed(f"a process is missing; {shown}")
    for native_peak, *ours in zip(printed[0], printed[1], reported):
        if any(abs(peak - native_peak) > 0.02 * native_peak + 4 * MIB for peak in ours):
            raise Failed(shown)
    suite.lines.append(f"  {name}: requested at most: " + ", ".join(f"{peak / MIB:.0f} MiB" for peak in reported))


def libraries(report, instant="peak"):
    """Bytes by other library, of all processes."""
    found = {}
    for process in report["processes"]:
        for device in process["devices"]:
            for library in device["accounting"][instant]["libraries"]:
                found[library["library"]] = found.get(library["library"], 0) + library["bytes"]
    return found


def demand_library(name, report, library, least, instant="peak"):
    """Checks that the report names at least so many bytes of a library."""
    found = libraries(report, instant)
    sizes = [size for each, size in found.items() if library in each]
    if sum(sizes) < least:
        raise Failed(f"{name}: {library} should have at least {least / MIB:.0f} MiB at the {instant}; the report has {found}")


def foreign(suite, package):
    """The folder of foreign software that MEMPROF_FOREIGN names, if it has the package; else None, and says so."""
    folder = os.environ.get("MEMPROF_FOREIGN")
    if folder and os.path.isdir(os.path.join(folder, package)):
        return os.path.abspath(folder)
    suite.lines.append(f"  no {package} in a folder named by MEMPROF_FOREIGN: left out")
    return None
