"""Jobs with and without memprof: their results, and the memory that the report names."""

import concurrent.futures
import os
import re

from checks.suite import PYTHON, Failed, LeftOut

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


def judged(name, native, recorded):
    """Compares the result lines of a recorded run with those of native runs, which `native` makes. Returns what was found.

    One native run is enough if the recorded one is bit-identical to it. Else three native runs must differ among
    themselves, and the recorded one from the nearest of them not much more.
    """
    natives = [native()]
    if not natives[0]:
        raise Failed(f"{name}: no results")
    if recorded in natives:
        return "bit-identical"
    natives += [native(), native()]
    if recorded in natives:
        return "bit-identical to one of three native runs, which differ"
    spread = max(distance(one, other) for one in natives for other in natives)
    found = min(distance(one, recorded) for one in natives)
    if not found <= TOLERATED * spread < float("inf"):
        raise Failed(f"{name}: recorded differs by {found:.2g}, native runs among themselves by {spread:.2g}: native {natives[0]}, recorded {recorded}")
    return f"{found:.1g} apart, native runs {spread:.1g}"


def side_by_side(suite, name, text, *flags, prefix=None, alone=False, environment=None, asleep=0):
    """Runs a script natively and recorded, at the same time unless `alone`, and compares their results.

    The recording must verify, and its report must name all that the native run requested from torch, but for
    `asleep` bytes that may not have been mapped at the peak. Returns the report and the recording's folder.
    """
    command = suite.script(name, text)
    if prefix:
        command = prefix + command[1:]
    if environment:
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
    with concurrent.futures.ThreadPoolExecutor(1 if alone else 2) as pool:
        first = pool.submit(suite.run, command, timeout=150)
        recording = pool.submit(suite.record, name, command, *flags)
    first, (directory, recorded) = first.result(), recording.result()
    runs = iter([first])

    def native():
        return results((next(runs, None) or suite.run(command, timeout=150)).stdout)

    suite.lines.append(f"  {name}: {judged(name, native, results(recorded.stdout))}")
    suite.verified(directory)
    report = suite.report(directory)
    demand_requests(suite, name, first.stdout, recorded.stdout, report, asleep)
    return report, directory


def demand_requests(suite, name, native, recorded, report, asleep):
    """Checks the greatest requested bytes in the report against what the processes printed, recorded and native."""
    printed = [sorted(int(peak) for peak in re.findall(r"^peak (\d+)$", output, re.M)) for output in (native, recorded)]
    if not printed[0]:
        return
    reported = sorted(device["max_requested"] for process in report["processes"] for device in process["devices"] if device["max_requested"] > 0)
    shown = f"{name}: requested at most: native {printed[0]}, recorded {printed[1]}, in the report {reported}"
    if not len(printed[0]) == len(printed[1]) == len(reported):
        raise Failed(f"a process is missing; {shown}")
    for native_peak, recorded_peak, ours in zip(printed[0], printed[1], reported):
        off = 0.02 * native_peak + 4 * MIB
        if abs(recorded_peak - native_peak) > off or not native_peak - asleep - off < ours < native_peak + off:
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


def has_foreign(package):
    """Whether the folder of foreign software that MEMPROF_FOREIGN names has a package."""
    folder = os.environ.get("MEMPROF_FOREIGN")
    return bool(folder) and os.path.isdir(os.path.join(folder, package))


def foreign(package):
    """The folder of foreign software that MEMPROF_FOREIGN names. Without the package the case is left out."""
    if not has_foreign(package):
        raise LeftOut(f"no {package} in a folder named by MEMPROF_FOREIGN")
    return os.path.abspath(os.environ["MEMPROF_FOREIGN"])
