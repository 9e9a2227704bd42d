"""Makes the table of cuDNN's workspaces that dry runs use, of recordings and dry runs of the same jobs.

    MEMPROF_DRY_RUN_CONVOLUTIONS=LOG memprof record --dry-run -o PLAN -- python3 samples/jobs/zoo.py --model vgg16 --iterations 3
    python3 samples/convolutions.py -o hooks/python/memprof/_dryrun/convolutions.txt RECORDING,PLAN,LOG...

A dry run logs each convolution with the number of its request. Requests of the two recordings are the same but for
workspaces, so the longest common sequence of sizes finds each convolution's result in the recording; a workspace is a
request after it that the next event frees. Prints for each job how many of its convolutions the others know, and how
many of the rest lie within the limits of the rules (convolutions.py).
"""

import argparse
import collections
import csv
import difflib
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ITERATION = 1  # the first that is like all others
TINY = 4096  # bytes; what a convolution without a workspace may ask for


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("jobs", nargs="+", metavar="RECORDING,PLAN,LOG")
    opts = parser.parse_args()
    jobs = {job: workspaces(opts.memprof, *job.split(",")) for job in opts.jobs}
    with open(opts.output, "w") as f:
        f.write("# BYTES KEY: workspaces of cuDNN on an H200, torch 2.11.0+cu130, recorded; made by samples/convolutions.py\n")
        for key, size in sorted(merged(jobs.values()).items()):
            f.write(f"{size} {key}\n")
    print("| job | convolutions | known from others | of recorded bytes |\n|---|---:|---:|---:|")
    for job, found in jobs.items():
        others = merged(table for name, table in jobs.items() if os.path.basename(name.split(",")[0]) != os.path.basename(job.split(",")[0]))
        known = [key for key in found if key in others]
        right = [key for key in known if abs(others[key] - found[key]) <= TINY]
        share = sum(found[key] for key in known) / max(1, sum(found.values()))
        print(f"| {os.path.basename(job.split(',')[0])} | {len(found)} | {len(known)}, {len(right)} the same | {100 * share:.0f} % |")


def merged(tables):
    """The most bytes that any table has for a key."""
    most = {}
    for table in tables:
        for key, size in table.items():
            most[key] = max(size, most.get(key, 0))
    return most


def workspaces(memprof, recording, plan, log):
    """Bytes of the workspaces of one iteration, by key."""
    recorded, planned = requests(memprof, recording), requests(memprof, plan)
    match = difflib.SequenceMatcher(None, [r.size for r in planned], [r.size for r in recorded], autojunk=False)
    place = {a + i: b + i for a, b, count in match.get_matching_blocks() for i in range(count)}
    at = {r.number: i for i, r in enumerate(planned)}
    found = collections.defaultdict(int)
    with open(log) as f:
        for number, key in map(json.loads, f):
            if at.get(number) in place:
                size = max(recorded[place[at[number]]].workspaces, default=0)
                found[key] = max(found[key], size if size > TINY else 0)
    if not found:
        sys.exit(f"{recording}, {plan}, {log}: no convolution of iteration {ITERATION} is in both")
    return dict(found)


class Request:
    def __init__(self, size, number):
        self.size, self.number, self.workspaces = size, number, []


def requests(memprof, run):
    """The requests of an iteration in order, each with the workspaces that followed it."""
    exported = subprocess.run([memprof, "export", "csv", run], stdout=subprocess.PIPE, text=True, check=True).stdout
    found, last, number, iteration = [], None, 0, 0
    for event in csv.DictReader(exported.splitlines()):
        if event["kind"] == "iteration":
            iteration += 1
        elif event["kind"] == "alloc":
            number += 1
            last = event["addr"]
            if iteration == ITERATION:
                found.append(Request(int(event["requested"]), number))
        elif event["kind"] == "free":
            if iteration == ITERATION and event["addr"] == last and len(found) > 1:
                size = found.pop().size
                found[-1].workspaces.append(size)
            last = None
    return found


if __name__ == "__main__":
    main()
