"""Runs all jobs of the recordings here dry, and packs the plans into one file.

    python3 samples/dry_runs.py -o dry-runs.tar.gz --jobs 8
    tar xzf dry-runs.tar.gz && python3 samples/dry_answers.py $(cat dry-runs/pairs)

The jobs are the 17 of zoo/, the 13 of irregular/, and the three beside them, each by the command that it was recorded with. Needs
torch, torchvision, transformers for five of them, and bin/memprof; a GPU is neither needed nor used. A job that convolves runs again
without those rows of the table of cuDNN's workspaces that only its own recording explains: that plan is the one which is packed. A job
that fails or takes longer than --timeout is reported, with the end of what it printed, and the others go on; the exit status is then 1.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TABLE = os.path.join(ROOT, "hooks", "python", "memprof", "_dryrun", "convolutions.txt")
MOST = 14 << 20  # bytes of the file of plans
SAID = 1500  # characters of what a failed job printed last


def recordings():
    """The recordings' names below samples/, with the commands of their jobs: not of engine/, whose graphs a dry run does not capture."""
    found = {}
    for path in sorted(glob.glob(os.path.join(HERE, "**", "run.json"), recursive=True)):
        with open(path) as f:
            command = json.load(f)["command"]
        if command[0] == "python3" and command[1].startswith("samples/jobs/") and command[1] != "samples/jobs/engine_start.py":
            found[os.path.relpath(os.path.dirname(path), HERE)] = [sys.executable, *command[1:]]
    return found


class DryRun:
    """One dry run of a job: what it printed, and how it ended."""

    def __init__(self, opts, job, command, folder, table=None):
        self.job, self.plan, self.log = job, os.path.join(folder, job), os.path.join(folder, "logs", job.replace("/", "-"))
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        os.makedirs(os.path.dirname(self.plan), exist_ok=True)
        env = dict(os.environ, CUDA_VISIBLE_DEVICES="", MEMPROF_DRY_RUN_CONVOLUTIONS=self.log)
        env.setdefault("OMP_NUM_THREADS", "2")  # several jobs run at a time
        if table:
            env["MEMPROF_DRY_RUN_TABLE"] = table
        line = [opts.memprof, "record", "--dry-run", "--card", "H200", "--force", "-o", self.plan, "--", *command]
        began = time.monotonic()
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        process = subprocess.Popen(line, cwd=ROOT, env=env, start_new_session=True, **pipes)
        try:
            self.printed, _ = process.communicate(timeout=opts.timeout)
            self.why = "" if process.returncode == 0 else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the group that Popen made
            self.printed, _ = process.communicate()
            self.why = f"not through after {opts.timeout} s"
        self.seconds = time.monotonic() - began

    def keys(self):
        """The convolutions of the job."""
        if not os.path.exists(self.log):
            return set()
        with open(self.log) as f:
            return {json.loads(line)[1] for line in f}

    def row(self):
        iterations = len(re.findall(r"^iteration \d+ loss", self.printed, re.M))
        requested = [int(n) for n in re.findall(r"^memory \d+ requested (\d+)", self.printed, re.M)]
        return f"| {self.job} | {self.why or 'done'} | {self.seconds:.1f} | {iterations} | {max(requested, default=0):,} |"


def without(table, keys, path):
    """Writes the table of workspaces without the given convolutions."""
    with open(table) as whole, open(path, "w") as rest:
        rest.writelines(line for line in whole if line.rstrip("\n").partition(" ")[2] not in keys)
    return path


def own(runs):
    """For each job that convolves: those of its convolutions that no other network has. The alexnet beside zoo/ is the one of zoo/."""
    having = collections.defaultdict(set)
    for run in runs:
        for key in run.keys():
            having[key].add(os.path.basename(run.job))
    return {run.job: {key for key in run.keys() if len(having[key]) == 1} for run in runs if run.keys()}


def pack(path, folder, done):
    """The plans of the jobs that were through, and the list for dry_answers.py. The summaries are left out: memprof makes them again."""
    pairs = os.path.join(folder, "pairs")
    with open(pairs, "w") as f:
        f.writelines(f"samples/{job},dry-runs/{job}\n" for job in done)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(pairs, "dry-runs/pairs")
        for job in done:
            tar.add(os.path.join(folder, job), "dry-runs/" + job, filter=lambda entry: None if os.path.basename(entry.name) == "summary" else entry)
    return os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the plans are packed")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many jobs run at a time")
    parser.add_argument("--timeout", type=float, default=150, metavar="SECONDS", help="the most that a job may take")
    parser.add_argument("--only", default="", metavar="PATTERN", help="run those recordings' jobs whose names match, as zoo/vgg or ring")
    parser.add_argument("--memprof", default=os.path.join(ROOT, "bin", "memprof"))
    opts = parser.parse_args()
    commands = {job: command for job, command in recordings().items() if re.search(opts.only, job)}
    if not commands:
        parser.error(f"no recording matches {opts.only}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        print("| job | ended | seconds | iterations | requested at most, bytes |\n|---|---|---:|---:|---:|")
        first = list(pool.map(lambda job: DryRun(opts, job, commands[job], os.path.join(folder, "first")), commands))
        again = {job: without(TABLE, keys, os.path.join(folder, job.replace("/", "-"))) for job, keys in own(first).items()}

        def without_own(run):
            if run.why or run.job not in again:
                return run
            return DryRun(opts, run.job, commands[run.job], os.path.join(folder, "second"), again[run.job])

        second = pool.map(without_own, first)
        done, failed = [], []
        for run in second:
            print(run.row(), flush=True)
            (failed if run.why else done).append(run)
            if not run.why:
                target = os.path.join(folder, "all", run.job)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.move(run.plan, target)
        size = pack(opts.output, os.path.join(folder, "all"), [run.job for run in done]) if done else 0
    for run in failed:
        print(f"\n{run.job}: {run.why}\n{run.printed[-SAID:]}")
    print(f"\n{len(done)} of {len(commands)} jobs; {opts.output}: {size:,} bytes" + (f", more than {MOST:,}" if size > MOST else ""))
    return 1 if failed or size > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
