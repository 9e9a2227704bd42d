"""How many identical jobs train together in a fixed share of a card before one fails?

    python3 samples/how_many.py --model resnet50 --share 40
    python3 samples/how_many.py --model resnet50 --share 40 --under "bin/memprof record --no-trace --"

A filler process allocates all of the card but the share. The jobs have the rest, with their contexts
and libraries. Jobs start one after another. A job counts when it has trained a few iterations and all
others have continued meanwhile. The first failure of any job ends the trial. All jobs have the same
seed, so their losses must agree.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import zoo_run

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "python3" if shutil.which("python3") == sys.executable else sys.executable

# Allocates all free memory but the share, until its input ends. The filler makes its context
# before it measures, so the context is not part of the share.
FILLER = """
import sys, torch
share, kept = int(sys.argv[1]), []
torch.cuda.synchronize()
for attempt in range(20):
    free = torch.cuda.mem_get_info()[0]
    if free - share < 2 << 20:
        break
    kept.append(torch.empty((free - share) >> 21 << 21, dtype=torch.uint8, device="cuda"))
print("free", torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


class Trouble(Exception):
    """The trial could not be run."""


class Job:
    """One job of the zoo or of the irregular ones, started and waiting for its turn."""

    def __init__(self, opts, number, work):
        self.number = number
        self.log = os.path.join(work, f"job{number}")
        self.gate = os.path.join(work, f"go{number}")
        script = ["irregular.py", "--job"] if opts.model in zoo_run.IRREGULAR else ["zoo.py", "--model"]
        job = [PYTHON, os.path.join(HERE, "jobs", script[0]), script[1], opts.model, "--start-at", self.gate, "--stop-at", os.path.join(work, "stop")]
        if opts.batch:
            job += ["--batch", str(opts.batch)]
        env = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
        if opts.expandable:
            env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        with open(self.log + ".out", "w") as out, open(self.log + ".err", "w") as err:
            self.process = subprocess.Popen(shlex.split(opts.under) + job, stdout=out, stderr=err, env=env, start_new_session=True)

    def output(self, stream="out"):
        with open(f"{self.log}.{stream}") as f:
            return f.read()

    def ready(self):
        return "ready\n" in self.output()

    def failed(self):
        """Whether the job has ended. During the trial a job ends only by a failure."""
        return self.process.poll() is not None

    def why(self):
        """The last line of its error output that names an error."""
        lines = [line.strip() for line in self.output("err").splitlines() if line.strip()]
        telling = [line for line in lines if "memory" in line.lower() or "Error" in line] or lines or ["no output"]
        return f"exit {self.process.returncode}: {telling[-1][:400]}"

    def losses(self):
        return re.findall(r"^iteration \d+ loss (\S+)\n", self.output(), re.M)

    def reserved(self):
        """Peak of reserved bytes."""
        return max((int(r) for r in re.findall(r"^memory \d+ .* reserved (\d+)\n", self.output(), re.M)), default=0)

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # a group of its own
        self.process.wait()


class Trial:
    """The jobs of one trial, in a folder of their own."""

    def __init__(self, opts, work):
        self.opts, self.work = opts, work
        self.waiting, self.training = [], []
        self.deadline = time.monotonic() + opts.timeout

    def fill(self):
        """Starts the filler. Returns the bytes that it left free."""
        command = [PYTHON, "-c", FILLER, str(self.opts.share << 30)]
        self.filler = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.filler.stdout.readline()
        found = re.match(r"free (\d+)$", line)
        if not found:
            raise Trouble("the filler did not fill the card: " + line)
        return int(found.group(1))

    def until(self, condition, what):
        while not condition():
            if time.monotonic() > self.deadline:
                raise Trouble(f"no time left: {what} after {self.opts.timeout} s")
            time.sleep(0.02)

    def prepare(self):
        """Starts jobs in advance; until they train they use only the host."""
        while len(self.waiting) < self.opts.ahead and len(self.waiting) + len(self.training) < self.opts.most:
            self.waiting.append(Job(self.opts, len(self.waiting) + len(self.training) + 1, self.work))

    def join(self):
        """Lets one more job train. Returns the job that then failed, or None if all continue."""
        self.prepare()
        job = self.waiting.pop(0)
        self.until(lambda: job.ready() or job.failed(), f"job {job.number} is not ready")
        if not job.ready():
            raise Trouble(f"job {job.number} could not start: {job.why()}")
        with open(job.gate, "w"):
            pass
        before = [len(j.losses()) for j in self.training]
        self.training.append(job)
        wanted = [b + self.opts.steps for b in before] + [self.opts.steps]
        # A failure of any shows before all have gone on, or never.
        self.until(lambda: self.failure() or all(len(j.losses()) >= n for j, n in zip(self.training, wanted)), f"{len(self.training)} jobs did not all continue")
        return self.failure()

    def failure(self):
        return next((j for j in self.training if j.failed()), None)

    def run(self):
        """Returns how many jobs trained together, and the job that failed then, or None."""
        failed = None
        while failed is None and len(self.training) < self.opts.most:
            failed = self.join()
        return len(self.training) - (failed is not None), failed

    def disagreement(self):
        """Losses of the same iteration that differ between jobs, or None."""
        all_losses = [j.losses() for j in self.training]
        for i in range(max(map(len, all_losses), default=0)):
            if len({losses[i] for losses in all_losses if len(losses) > i}) > 1:
                return f"iteration {i}: " + " ".join(losses[i] for losses in all_losses if len(losses) > i)
        return None

    def end(self):
        with open(os.path.join(self.work, "stop"), "w"):
            pass
        limit = time.monotonic() + 10
        while time.monotonic() < limit and not all(j.failed() for j in self.training):
            time.sleep(0.02)
        for job in self.waiting + self.training:
            job.end()
        if hasattr(self, "filler"):
            self.filler.stdin.close()
            self.filler.wait()


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--share", type=int, required=True, help="GiB of the card that the jobs have to themselves")
    parser.add_argument("--under", default="", help="what each job is run under")
    parser.add_argument("--expandable", action="store_true", help="torch's own allocator with expandable segments")
    parser.add_argument("--steps", type=int, default=8, help="iterations that every job must train while the newest does (default 8)")
    parser.add_argument("--most", type=int, default=24, help="jobs to try at most")
    parser.add_argument("--ahead", type=int, default=4, help="jobs kept ready")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for the whole trial")
    return parser.parse_args()


def main():
    opts = options()
    work = tempfile.mkdtemp(prefix="how-many-")
    trial = Trial(opts, work)
    try:
        trial.prepare()
        free = trial.fill()
        if not 0 <= free - (opts.share << 30) < 64 << 20:
            raise Trouble(f"the filler left {free / 2**30:.3f} GiB free, not {opts.share}")
        count, failed = trial.run()
        for job in trial.training:
            print(f"job {job.number}: {len(job.losses())} iterations, reserved {job.reserved() / 2**20:.0f} MiB at most")
        print(f"job {failed.number} failed: {failed.why()}" if failed else "none failed")
        differ = trial.disagreement()
        print("losses " + (f"differ: {differ}" if differ else "agree"))
        print(f"together {count} in {opts.share} GiB")
        return 1 if differ else 0
    except Trouble as trouble:
        print("no result:", trouble, file=sys.stderr)
        return 2
    finally:
        trial.end()
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
