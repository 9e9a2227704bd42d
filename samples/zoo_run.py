"""Trains the zoo under several allocators, and compares the memory that each reserves.

    python3 samples/zoo_run.py -o DIR                        every model under every allocator
    python3 samples/zoo_run.py -o DIR --modes classic        memprof's only, with preset classic
    python3 samples/zoo_run.py -o DIR --turns 2 --modes classic compact    their steps, compared
    python3 samples/zoo_run.py --table DIR/results.json      the tables of a run before
    python3 samples/zoo_run.py -o DIR --models irregular     the jobs of samples/jobs/irregular.py

As many jobs as fit share a card, so their steps cannot be compared. With --turns N the jobs of one
model have a card to themselves, at most N under each allocator; they train in turns (in_turns.py),
and their steps are compared. --workers 2 trains data-parallel on two cards. DIR gets the recordings,
MODE/MODEL (turnN/MODE/MODEL for further jobs with --turns), and results.json, which is rewritten as
each job ends. Jobs that failed, or for which no time was left, are listed there and at the end; the
tables have the others.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import in_turns

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "python3" if shutil.which("python3") == sys.executable else sys.executable

# The most GiB of a card that a job of each model may use under any policy; it decides how many run at a time.
# Regions that double add up to a power of two. If the card has no room for one of them, growth backs off and the
# result is of another policy. So this is the next power of two above the job's need, and its context.
NEEDS = {
    "alexnet": 4, "vgg11": 18, "vgg16": 18, "vgg19": 18, "googlenet": 10, "inception_v3": 18, "resnet50": 10, "resnet101": 10, "resnet152": 18,
    "densenet121": 18, "mobilenet_v2": 10, "squeezenet1_1": 6, "vit_b_16": 18, "bert": 18, "gpt2": 34, "llama": 34, "moe": 34,
}  # fmt: skip

# The same of the jobs whose iterations differ.
IRREGULAR = {
    "qlora": 14, "moe64": 14, "ring": 14, "pipeline": 18, "fsdp2": 14, "diffusion": 18, "graphs": 10, "seq2seq": 10, "prefill": 14, "loading": 14,
    "grpo": 14, "stash_soft": 124, "stash_comb": 124,
}  # fmt: skip

COMPACT = ["--preset", "compact"]
# Seconds in which jobs have to end: after the budget is spent, and after they were asked to.
LAST_JOBS, LAST_WORDS = 60, 10

# Flags of `memprof record`, or None for torch's own allocator; and the environment.
MODES = {
    "classic": ([], {}),
    "compact": (COMPACT, {}),
    "native": (None, {}),
    "expandable": (None, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
}


class Run:
    """One job and its results."""

    def __init__(self, opts, model, mode, turn=0):
        self.model, self.mode, self.turn, self.names, self.memprof = model, mode, turn, opts.names, opts.memprof
        self.needs = min({**NEEDS, **IRREGULAR}.get(model, 34), opts.memory)
        self.name = (f"turn{turn}/" if turn else "") + f"{mode}/{model}"
        self.recording = os.path.join(opts.output, self.name) if MODES[mode][0] is not None else None
        self.log = os.path.join(opts.output, "logs", self.name.replace("/", "-"))
        self.result = {"model": model, "mode": mode, "turn": turn, "workers": opts.workers}
        self.command = self.command_line(opts)

    def command_line(self, opts):
        script, choice = ("irregular.py", "--job") if self.model in IRREGULAR else ("zoo.py", "--model")
        job = [os.path.relpath(os.path.join(HERE, "jobs", script)), choice, self.model, "--seed", str(opts.seed)]
        if self.model not in IRREGULAR:
            job += ["--iterations", str(opts.iterations)]
        if opts.batch:
            job += ["--batch", str(opts.batch)]
        if opts.benchmark:
            job.append("--benchmark")
        launch = [PYTHON] if opts.workers == 1 else [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(opts.workers)]
        flags = MODES[self.mode][0]
        if flags is None:
            return launch + job
        return [opts.memprof, "record", "-q", "--force", "-o", self.recording, *flags, "--", *launch, *job]

    def environment(self, cards):
        """The command and environment of the job. Makes the folders for its recording and logs."""
        self.cards, self.began = cards, time.monotonic()
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        if self.recording:
            os.makedirs(os.path.dirname(self.recording), exist_ok=True)
        env = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
        env.update(MODES[self.mode][1], CUDA_VISIBLE_DEVICES=",".join(self.names[card] for card in cards))
        env.setdefault("OMP_NUM_THREADS", "2")  # many jobs make their weights at once
        return env

    def start(self, cards):
        env = self.environment(cards)
        with open(self.log + ".out", "w") as out, open(self.log + ".err", "w") as err:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=err, env=env, start_new_session=True)

    def start_in_turns(self, card, cards):
        env = self.environment([card])
        self.job = in_turns.Job([*self.command, "--in-turns"], self.log + ".err", env, (card, cards))

    def ended(self, opts):
        """Whether the job has ended. Ends it if it has taken too long."""
        if self.process.poll() is None:
            seconds = time.monotonic() - self.began
            if seconds < opts.timeout and opts.left() > -LAST_JOBS:
                return False
            self.end()
            self.result["why"] = f"not through after {seconds:.0f} s"
        with open(self.log + ".out") as f:
            self.came_to(self.process.returncode, f.read())
        return True

    def came_to(self, status, output):
        """Keeps what the job printed, once it has ended."""
        self.result.update(exit=status, seconds=round(time.monotonic() - self.began, 1), cards=self.cards, **parse(output))
        if status != 0:
            with open(self.log + ".err") as f:
                self.result["error"] = f.read()[-1500:]
        if self.recording and os.path.isdir(self.recording):
            self.result["recording"] = self.name
            self.result["marked"] = marked(self.memprof, self.recording) if status == 0 else None
            self.result["recording_bytes"] = sum(os.path.getsize(os.path.join(self.recording, f)) for f in os.listdir(self.recording))

    def end(self):
        """Ends the job, first by SIGTERM: torchrun's workers have process groups of their own."""
        os.killpg(self.process.pid, signal.SIGTERM)  # the group that start made
        try:
            self.process.wait(LAST_WORDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def parse(output):
    """From what a job of the zoo printed: losses, and peaks of bytes requested, allocated and reserved, by iteration."""
    memory = re.findall(r"^memory \d+ requested (\d+) allocated (\d+) reserved (\d+)$", output, re.M)
    step = re.search(r"^step (\S+) ms$", output, re.M)
    return {
        "losses": re.findall(r"^iteration \d+ loss (\S+)$", output, re.M),
        "memory": [[int(value) for value in line] for line in memory],
        "step_ms": float(step.group(1)) if step else None,
    }


def marked(memprof, recording):
    """Peaks of provided and reserved bytes by iteration, of the first process of the recording; or None."""
    report = subprocess.run([memprof, "report", "--json", recording], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if report.returncode != 0:
        return None
    iterations = json.loads(report.stdout)["processes"][0]["devices"][0]["iterations"]
    return [[i["peak_provided"], i["peak_reserved"]] for i in iterations]


def names_of_cards():
    """The cards to be used, as CUDA_VISIBLE_DEVICES has them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"^GPU (\d+):", listed, re.M)


class Cards:
    """The cards, and the memory of each that no job is assigned."""

    def __init__(self, count, memory):
        self.free = {i: memory for i in range(count)}

    def take(self, run, workers):
        """The cards for a run, or None while there is no room."""
        room = sorted((i for i, free in self.free.items() if free >= run.needs), key=lambda i: -self.free[i])
        if len(room) < workers:
            return None
        for i in room[:workers]:
            self.free[i] -= run.needs
        return sorted(room[:workers])

    def give_back(self, run):
        for i in run.cards:
            self.free[i] += run.needs


def share_cards(opts, pending):
    """Runs jobs side by side, the largest first, as many as the cards have room for."""
    room, running = Cards(opts.cards, opts.memory), []
    pending = sorted(pending, key=lambda run: -run.needs)
    while pending or running:
        for run in [r for r in running if r.ended(opts)]:
            running.remove(run)
            room.give_back(run)
            print_result(opts, run)
        for run in list(pending):
            if opts.left() < 0:
                break
            taken = room.take(run, opts.workers) if len(running) < opts.jobs else None
            if taken is not None:
                pending.remove(run)
                running.append(run)
                run.start(taken)
        if opts.left() < 0 and not running:
            break
        time.sleep(0.05)
    return pending


def take_turns(opts, models):
    """Runs the jobs of one model at a time on each card, in turns. Returns the models for which no time was left."""
    lock = threading.Lock()
    left = in_turns.on_cards(opts.cards, models, lambda runs, card: together(opts, runs, card, lock), lambda: opts.left() < 0)
    return [run for runs in left for run in runs]


def together(opts, runs, card, lock):
    """Runs the jobs of a model in turns on one card. The first job of each mode keeps the rounds, under the lock."""
    for run in runs:
        run.start_in_turns(card, opts.cards)
    kinds = {mode: [run.job for run in runs if run.mode == mode] for mode in opts.modes}
    rounds, why = {}, None
    try:
        rounds = in_turns.measure(kinds, opts.iterations, opts.seconds, opts.timeout)
    except in_turns.Stopped as stopped:
        why = str(stopped)
    for run in runs:
        status, output = run.job.end()
        with open(run.log + ".out", "w") as f:
            f.write(output)
        with lock:
            run.came_to(status, output)
            if why:
                run.result["why"] = why
            elif run.turn == 0:
                run.result["rounds"] = rounds[run.mode]
            print_result(opts, run)


def print_result(opts, run):
    """Prints the result of a job, and keeps it."""
    opts.save()
    r = run.result
    if trouble(r):
        print(f"  {run.name}: {trouble(r)} after {r['seconds']} s: {' '.join(run.command)}\n{r.get('error', '')}", flush=True)
        return
    print(f"  {run.name}: {r['seconds']} s, step {r['step_ms']} ms, peak {mib(peak(r))} MiB", flush=True)


def trouble(result):
    """Why a job has no figures for the tables, or None."""
    if "why" in result:
        return result["why"]
    if "exit" not in result:
        return "not through"
    if result["exit"] != 0:
        return f"exit {result['exit']}"
    if len(result["memory"]) < 2 or result["step_ms"] is None:
        return "it printed no iterations"
    return None


def good(results):
    """The jobs that have figures."""
    return [r for r in results["runs"] if not trouble(r)]


def peak(result):
    """Peak of reserved bytes."""
    return max(line[2] for line in result["memory"])


def steady(result):
    """Peak of reserved bytes from the fifth iteration on; with fewer iterations, of the last."""
    lines = result["memory"]
    return max(line[2] for line in lines[4:] or lines[-1:])


def mib(size):
    return f"{size / 2**20:,.0f}"


def idle(result):
    """1 - C/R of each iteration, by its own peaks: of the first, and of the later ones in the mean; 1 - max T/max R.

    An iteration ends where the optimizer is through, which a recording knows. The job reads torch's
    peaks later, when it has waited for the device: what was mapped ahead for the next iteration is in them.
    """
    lines = result["memory"]
    own = [1 - c / r for c, r in result.get("marked") or [line[1:] for line in lines]]
    return own[0], statistics.mean(own[1:]), 1 - max(t for t, _, _ in lines) / max(r for _, _, r in lines)


def tables(results):
    """Prints tables in Markdown. Returns what was found wrong."""
    runs = good(results)
    modes = [m for m in MODES if any(r["mode"] == m for r in runs)]
    names = [n for n in [*NEEDS, *IRREGULAR] if any(r["model"] == n for r in runs)]
    names += sorted({r["model"] for r in runs} - set(names))
    of = {(n, m): [r for r in runs if (r["model"], r["mode"]) == (n, m)] for n in names for m in modes}
    wrong = [f"{r['mode']}/{r['model']}: {trouble(r)}" for r in results["runs"] if trouble(r)]

    print(f"{results['device']}; peak and steady device memory in MiB\n")
    row(["", *[f"{m} peak" for m in modes], *[f"{m} steady" for m in modes]])
    row(["---"] + ["---:"] * (2 * len(modes)))
    for n in names:
        row([n, *[mib(peak(of[n, m][0])) if of[n, m] else "–" for m in modes], *[mib(steady(of[n, m][0])) if of[n, m] else "–" for m in modes]])

    print("\nShares of the reserved memory that were idle: 1 - C/R in the first and in later iterations, 1 - max T / max R\n")
    row(["", *[f"{m} {what}" for m in modes for what in ("first", "later", "T")]])
    row(["---"] + ["---:"] * (3 * len(modes)))
    shares = {key: idle(runs[0]) for key, runs in of.items() if runs}
    for n in names:
        row([n, *[f"{100 * shares[n, m][i]:.1f} %" if of[n, m] else "–" for m in modes for i in range(3)]])
    whole = [n for n in names if all(of[n, m] for m in modes)]
    if whole:
        row([f"mean of {len(whole)}", *[f"{100 * statistics.mean(shares[n, m][i] for n in whole):.1f} %" for m in modes for i in range(3)]])

    steps(names, modes, of)
    for n in names:
        found = {tuple(r["losses"]) for m in modes for r in of[n, m]}
        if len(found) > 1:
            wrong.append(f"{n}: losses differ: " + "; ".join(f"{r['mode']} {r['losses'][-1]}" for m in modes for r in of[n, m]))
    if not wrong:
        print("\nLosses are bit-identical under all of them.")
    return wrong


def steps(names, modes, of):
    """The table of steps, of jobs that took turns."""
    rounds = {key: next((r["rounds"] for r in runs if r.get("rounds")), None) for key, runs in of.items()}
    if not any(rounds.values()) or "classic" not in modes:
        return
    print("\nStep in ms, the median; its ratio to classic in the same iteration: the median, and its 95 % interval;")
    print("how far the jobs of one kind are apart at most\n")
    row(["", *modes, "apart"])
    row(["---"] + ["---:"] * (len(modes) + 1))
    for n in names:
        apart = [in_turns.apart(rounds[n, m]) for m in modes if rounds[n, m]]
        cells = [step(rounds[n, m], rounds[n, "classic"] if m != "classic" else None) for m in modes]
        row([n, *cells, "–" if None in apart or not apart else f"{max(apart):.3f}"])


def step(rounds, base):
    """A cell of the table of steps."""
    if not rounds:
        return "–"
    text = f"{statistics.median(in_turns.steps(rounds)):.2f}"
    if base:
        text += " ({:.3f}, {:.3f} to {:.3f})".format(*in_turns.ratio(rounds, base))
    return text


def row(cells):
    print("| " + " | ".join(cells) + " |")


def describe():
    script = "import torch; print(torch.__version__); print(torch.cuda.get_device_name(0))"
    version, device = subprocess.run([PYTHON, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[:2]
    driver = "unknown"
    if shutil.which("nvidia-smi"):
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    return f"{device}, driver {driver}, torch {version}"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", metavar="DIR")
    parser.add_argument("--table", metavar="FILE", help="print the tables of these results, and run nothing")
    parser.add_argument("--models", nargs="+", default=list(NEEDS), metavar="MODEL")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turns", type=int, default=0, help="compare steps: at most this many jobs of each model and mode, in turns")
    parser.add_argument("--seconds", type=float, default=20, help="with --turns, seconds of each model's turns (default 20)")
    parser.add_argument("--benchmark", action="store_true", help="let cudnn choose algorithms by measuring them; losses differ then")
    parser.add_argument("--workers", type=int, default=1, help="data-parallel workers of each job")
    parser.add_argument("--memory", type=int, default=124, help="GiB of each card to be shared by jobs (default 124)")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="most jobs at a time")
    parser.add_argument("--budget", type=float, default=240, help=f"seconds after which no job is started; {LAST_JOBS} later those that still run are ended (default 240)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds after which a job is ended")
    parser.add_argument("--compact", help="flags of memprof record for the compact policy (default: " + " ".join(COMPACT) + ")")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    opts = parser.parse_args()
    if not opts.table and not opts.output:
        parser.error("-o DIR or --table FILE is needed")
    if opts.turns and opts.workers > 1:
        parser.error("--turns is for jobs of one worker")
    opts.models = [name for model in opts.models for name in (IRREGULAR if model == "irregular" else [model])]
    if opts.compact:
        MODES["compact"] = (opts.compact.split(), {})
    return opts


def conclude(results):
    wrong = tables(results)
    for line in wrong:
        print("wrong:", line)
    return 1 if wrong else 0


def main():
    opts = options()
    if opts.table:
        with open(opts.table) as f:
            return conclude(json.load(f))
    opts.memprof, opts.output = os.path.abspath(opts.memprof), os.path.abspath(opts.output)
    began = time.monotonic()
    opts.left = lambda: opts.budget - (time.monotonic() - began)
    opts.pairs = lambda n: min(opts.turns, max(1, opts.memory // (len(opts.modes) * {**NEEDS, **IRREGULAR}.get(n, 34))))
    opts.names = names_of_cards()
    opts.cards = len(opts.names)
    if opts.cards < opts.workers:
        sys.exit(f"{opts.workers} workers need as many cards; there are {opts.cards}")
    results = {"device": describe(), "cards": opts.cards, "phases": [], "runs": []}
    os.makedirs(opts.output, exist_ok=True)

    def save():
        with open(os.path.join(opts.output, "results.json"), "w") as f:
            json.dump(results, f)
            f.write("\n")

    opts.save = save

    def phase(name, runs, execute):
        start = time.monotonic()
        results["runs"] += [run.result for run in runs]
        for run in execute():
            run.result["why"] = f"no time left of {opts.budget:.0f} s"
        results["phases"].append({"name": name, "seconds": round(time.monotonic() - start, 1), "jobs": len(runs)})
        print(f"phase {name}: {results['phases'][-1]['seconds']} s of the device for {len(runs)} jobs", flush=True)
        save()

    if opts.turns:
        models = [[Run(opts, n, m, turn) for turn in range(opts.pairs(n)) for m in opts.modes] for n in opts.models]
        phase("turns", [run for runs in models for run in runs], lambda: take_turns(opts, models))
    else:
        for mode in opts.modes:
            runs = [Run(opts, n, mode) for n in opts.models]
            phase(mode, runs, lambda: share_cards(opts, runs))
    return conclude(results)


if __name__ == "__main__":
    sys.exit(main())
