"""Compares what recordings say that PyTorch's own allocator would reserve with what it does reserve.

    python3 samples/predicted_peaks.py -o DIR irregular:qlora irregular:moe64 zoo:moe
    python3 samples/predicted_peaks.py --zoo-run DIR    of what zoo_run.py left in DIR, and no job is run

Each job runs three times: recorded under memprof's allocator, and unrecorded under PyTorch's own, with and
without expandable segments. `memprof fit` predicts the peaks of the latter two from the recording alone.
A prediction is right within 0.1 %, or where PyTorch's peak lies in the band that `fit` names: there equal
free blocks tie, or wait for other streams, and addresses or the card's speed decide. DIR gets the recordings,
logs and results.json. Several jobs share the card; one that fails is tried again with the card to itself.
Exit 1: a prediction is wrong, or a job failed.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = {"zoo": "--model", "irregular": "--job"}  # of the scripts in jobs/, for the name of a job
MODES = ("recorded", "native", "expandable_segments:True")
EXACT = 0.001
MIB = 1 << 20


def command(opts, job, mode):
    script, _, name = job.partition(":")
    run = [sys.executable, os.path.join(HERE, "jobs", script + ".py"), FLAGS[script], name, *opts.extra]
    if mode == "recorded":
        return [opts.memprof, "record", "-q", "--force", *opts.record.split(), "-o", recording(opts, job), "--", *run]
    return run


def recording(opts, job):
    return os.path.join(opts.output, job.replace(":", "-"))


def environment(mode):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
    env.setdefault("OMP_NUM_THREADS", "2")
    if mode.startswith("expandable"):
        env["PYTORCH_CUDA_ALLOC_CONF"] = mode
    return env


def run(opts, job, mode):
    """Runs a job and returns what PyTorch reserved, in bytes, and why that is not known."""
    if opts.left() <= 0:
        return {"job": job, "mode": mode, "why": "no time left"}
    log = os.path.join(opts.output, f"{job}-{mode}".replace(":", "-"))
    began = time.monotonic()
    with open(log + ".out", "w") as out, open(log + ".err", "w") as err:
        process = subprocess.Popen(command(opts, job, mode), stdout=out, stderr=err, env=environment(mode))
        try:
            code = process.wait(max(5, min(opts.timeout, opts.left() + 20)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return {"job": job, "mode": mode, "why": "not through in time"}
    with open(log + ".out") as f:
        peak = re.search(r"^memory peak \d+ allocated (\d+) reserved$", f.read(), re.M)
    result = {"job": job, "mode": mode, "seconds": round(time.monotonic() - began, 1)}
    if code or not peak:
        with open(log + ".err") as f:
            return {**result, "why": f"exit {code}: " + f.read()[-300:]}
    return {**result, "reserved": int(peak[1])}


def predictions(opts, path):
    """The rows of `memprof fit` for PyTorch's allocator, by setting."""
    done = subprocess.run([opts.memprof, "fit", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return {"why": done.stderr[-300:]}
    return {p["setting"]: p for p in json.loads(done.stdout)["rows"] if p["allocator"] == "torch"}


def verdict(real, predicted):
    """(text, whether it is right) of a peak and a row of `fit`."""
    off = predicted["peak_reserved"] / real - 1
    band = predicted["peak_reserved_band"]
    if predicted["peak_reserved"] == real:
        return "equal", True
    if abs(off) <= EXACT:
        return f"{off:+.3%}", True
    if band["least"] <= real <= band["greatest"]:
        return f"{off:+.2%}, in the band", True
    return f"**{off:+.2%}**", False


def table(opts, results, rows):
    """Prints the table in Markdown and returns what was wrong."""
    wrong, real = [], {(r["job"], r["mode"]): r for r in results}
    for r in results:
        if "why" in r:
            wrong.append(f"{r['job']} {r['mode']}: {r['why']}")
    print("\nPeak reserved, MiB\n")
    print("| job | allocator | PyTorch reserved | predicted | band | off |")
    print("|---|---|---|---|---|---|")
    for job in opts.jobs:
        if "why" in rows.get(job, {}):
            wrong.append(f"{job}: memprof fit: {rows[job]['why']}")
            continue
        for mode in MODES[1:]:
            found, predicted = real.get((job, mode), {}).get("reserved"), rows.get(job, {}).get(mode)
            if found is None or predicted is None:
                continue
            text, right = verdict(found, predicted)
            band = predicted["peak_reserved_band"]
            span = f"{band['least'] / MIB:,.0f} to {band['greatest'] / MIB:,.0f}" if band["least"] < band["greatest"] else ""
            print(f"| {job} | {mode} | {found / MIB:,.0f} | {predicted['peak_reserved'] / MIB:,.0f} | {span} | {text} |")
            if not right:
                wrong.append(f"{job} {mode}: {found} bytes reserved, {predicted['peak_reserved']} predicted")
    return wrong


def of_zoo_run(opts):
    """Compares what zoo_run.py left."""
    with open(os.path.join(opts.zoo_run, "results.json")) as f:
        runs = [r for r in json.load(f)["runs"] if r.get("exit") == 0 and r["memory"]]
    results, recordings = [], {}
    for r in runs:
        if r["mode"] in ("native", "expandable"):
            mode = next(m for m in MODES if m.startswith(r["mode"]))
            results.append({"job": r["model"], "mode": mode, "reserved": max(line[2] for line in r["memory"])})
        elif r.get("recording"):  # under any of memprof's policies
            recordings.setdefault(r["model"], os.path.join(opts.zoo_run, r["recording"]))
    opts.jobs = sorted({r["job"] for r in results} & set(recordings))
    return table(opts, results, {job: predictions(opts, recordings[job]) for job in opts.jobs})


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="SCRIPT:NAME", help="zoo:moe, irregular:qlora")
    parser.add_argument("-o", "--output", metavar="DIR")
    parser.add_argument("--zoo-run", metavar="DIR", help="what zoo_run.py -o DIR left, with the modes native, expandable and at least one of memprof's")
    parser.add_argument("--record", default="", metavar="FLAGS", help="flags of memprof record, '--preset compact'")
    parser.add_argument("--jobs-at-once", type=int, default=6, metavar="N")
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no job is started (default 240)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a job is ended")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="further arguments of the jobs; last")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    opts = parser.parse_args()
    if not opts.zoo_run and not (opts.jobs and opts.output):
        parser.error("--zoo-run, or -o and jobs, are needed")
    for job in opts.jobs:
        if job.partition(":")[0] not in FLAGS:
            parser.error(f"{job}: want one of {', '.join(FLAGS)}, a colon and the name of a job")
    return opts


def main():
    opts = options()
    opts.memprof = os.path.abspath(opts.memprof)
    if opts.zoo_run:
        return conclude(of_zoo_run(opts))
    opts.output = os.path.abspath(opts.output)
    os.makedirs(opts.output, exist_ok=True)
    began, lock = time.monotonic(), threading.Lock()
    opts.left = lambda: opts.budget - (time.monotonic() - began)
    results, rows = [], {}

    def once(job, mode):
        result = run(opts, job, mode)
        predicted = predictions(opts, recording(opts, job)) if mode == "recorded" and "why" not in result else None
        with lock:
            print(f"{time.monotonic() - began:6.1f} s  {job} {mode}: {result.get('reserved', result.get('why'))}", flush=True)
            results[:] = [r for r in results if (r["job"], r["mode"]) != (job, mode)] + [result]
            if predicted is not None:
                rows[job] = predicted
            with open(os.path.join(opts.output, "results.json"), "w") as f:
                json.dump({"runs": results, "predicted": rows}, f, indent=1)

    with concurrent.futures.ThreadPoolExecutor(opts.jobs_at_once) as pool:
        for future in [pool.submit(once, job, mode) for job in opts.jobs for mode in MODES]:
            future.result()
    for failed in [r for r in results if "why" in r]:
        once(failed["job"], failed["mode"])
    return conclude(table(opts, results, rows))


def conclude(wrong):
    for line in wrong:
        print("wrong:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
