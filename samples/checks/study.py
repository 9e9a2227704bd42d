"""The zoo under four allocators, and how many jobs share a card: the BFC paper's study."""

import json
import os
import re
import shlex
import shutil
import statistics

import zoo_run
from checks.suite import HERE, PYTHON, Failed, LeftOut, alone, two_gpus_only

LARGEST_RECORDING = 1 << 20


def zoo(suite, name, *arguments, timeout=580):
    """Runs zoo_run.py. Returns its folder, the jobs that have figures, and what was wrong. A case raises that last:
    what the others found is on the table by then, and kept."""
    output = os.path.join(suite.keep or suite.work, name)
    shutil.rmtree(output, ignore_errors=True)
    command = [PYTHON, os.path.join(HERE, "zoo_run.py"), "--memprof", suite.memprof, "-o", output, *arguments]
    done = suite.run(command, expect=None, timeout=timeout)
    print(done.stdout, flush=True)
    wrong = re.findall(r"^wrong: (.*)$", done.stdout, re.M)
    if done.returncode != 0 and not wrong:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    with open(os.path.join(output, "results.json")) as f:
        results = json.load(f)
    for phase in results["phases"]:
        suite.figure(f"zoo: {phase['name']}, {phase['jobs']} jobs", f"{phase['seconds']:.0f} s of the device")
    runs = zoo_run.good(results)
    if "--turns" in arguments:  # recordings of the same jobs, only longer
        return output, runs, wrong
    for r in runs:
        if r.get("recording_bytes", 0) > LARGEST_RECORDING * r["workers"]:
            wrong.append(f"recording {r['recording']} has {r['recording_bytes']} bytes, more than {LARGEST_RECORDING} a worker")
        if "recording" in r:
            wrong += unverified(suite, os.path.join(output, r["recording"]))
    return output, runs, wrong


def unverified(suite, recording):
    """What `memprof verify` finds wrong with a recording, or None."""
    try:
        suite.verified(recording)
    except Failed as failed:
        return [str(failed)]
    return []


def conclude(wrong):
    if wrong:
        raise Failed("; ".join(wrong))


def paper(suite, folder):
    """Prints the paper's table of the recordings in the folder. Returns what is wrong, and the figures."""
    command = [suite.memprof, "report", "--table", "paper"]
    done = suite.run([*command, folder], expect=None)
    print(done.stdout, flush=True)
    wrong = [f"report --table paper: exit {done.returncode}: {done.stderr[-2000:]}"] if done.returncode != 0 else []
    return wrong, json.loads(suite.run([*command, "--json", folder], expect=None).stdout or '{"jobs": []}')


def judge(suite, runs):
    """Which promised bounds compact does not keep, over the models that ended well under all four."""
    of = {(r["model"], r["mode"]): r for r in runs}
    models = [n for n in sorted({model for model, _ in of}) if all((n, m) in of for m in zoo_run.MODES)]
    if not models:
        return ["no model ended well under all four allocators"]
    mean = {m: [statistics.mean(zoo_run.idle(of[n, m])[i] for n in models) for i in range(3)] for m in zoo_run.MODES}
    for m in zoo_run.MODES:
        suite.figure(f"zoo: 1 - C/R, {m}, mean of {len(models)} models", f"{100 * mean[m][0]:.1f} % first, {100 * mean[m][1]:.1f} % later", "3 %" if m == "compact" else "")
        suite.figure(f"zoo: 1 - max T / max R, {m}, mean", f"{100 * mean[m][2]:.1f} %")
    above = [f"{n} {100 * first:.1f} %, {100 * later:.1f} %" for n in models for first, later, _ in [zoo_run.idle(of[n, "compact"])] if max(first, later) > 0.03]
    suite.figure("zoo: models above 3 % under compact, first and later", "; ".join(above) or "none")
    wrong = [f"compact is idle by {100 * share:.1f} % in {what} iterations" for what, share in zip(("first", "later"), mean["compact"]) if share > 0.03]
    if mean["compact"][2] >= mean["expandable"][2]:
        wrong.append(f"compact wastes {100 * mean['compact'][2]:.2f} %, expandable segments {100 * mean['expandable'][2]:.2f} %")
    for n in models:
        compact, native = zoo_run.peak(of[n, "compact"]), zoo_run.peak(of[n, "native"])
        if compact > native:
            wrong.append(f"{n}: compact {zoo_run.mib(compact)} MiB, native {zoo_run.mib(native)}")
    return wrong


@alone
def zoo_small(suite):
    """Three small models under all four allocators."""
    _, runs, wrong = zoo(suite, "zoo_small", "--models", "alexnet", "squeezenet1_1", "resnet50")
    if len(runs) != 12:
        wrong.append(f"{len(runs)} of 12 jobs came through")
    conclude(wrong)


@alone
def zoo_classic(suite):
    """The paper's table: every model, recorded with preset classic."""
    folder, _, wrong = zoo(suite, "zoo_classic", "--modes", "classic")
    conclude(wrong + paper(suite, os.path.join(folder, "classic"))[0])


@alone
def zoo_first_iterations(suite):
    """Whether cudnn's search for algorithms makes first iterations the larger ones, as in the paper."""
    found, wrong = {}, []
    for name, *flags in (("fixed",), ("searched", "--benchmark")):
        folder, _, failed = zoo(suite, "zoo_" + name, "--models", "alexnet", "vgg16", "inception_v3", "resnet50", "--modes", "classic", *flags)
        unread, table = paper(suite, os.path.join(folder, "classic"))
        wrong += failed + unread
        found[name] = {job["name"]: job["values"]["excess_of_c"] for job in table["jobs"]}
    for model in sorted(set(found["fixed"]) & set(found["searched"])):
        suite.figure(f"{model}: C1/C2 - 1, algorithms fixed and searched for", ", ".join(f"{100 * found[name][model]:+.1f} %" for name in found))
    conclude(wrong)


@alone
def zoo_four_allocators(suite):
    """Every model under all four: about four times as long as zoo_classic."""
    _, runs, wrong = zoo(suite, "zoo", "--budget", "420")
    conclude(wrong + judge(suite, runs))


@alone
def zoo_steps(suite):
    """Steps of preset compact compared with classic, in turns on one card. With one card: three models."""
    several = suite.gpus() > 1
    chosen = [] if several else ["--models", "alexnet", "resnet50", "gpt2"]
    folder, runs, wrong = zoo(suite, "zoo_steps", "--modes", "classic", "compact", "--turns", "3", "--budget", "420", *chosen)
    for r in runs:
        shutil.rmtree(os.path.join(folder, r["recording"]))
    for model in sorted({r["model"] for r in runs}):
        rounds = {r["mode"]: r["rounds"] for r in runs if r["model"] == model and "rounds" in r}
        if len(rounds) == 2:  # or what came of them is in wrong
            wrong.append(suite.compared(f"zoo: {model}", "compact", "classic", rounds, "1.01", 1.01))
    conclude([line for line in wrong if line])


@two_gpus_only
@alone
def zoo_two_workers(suite):
    """Two models in the paper's own setting: two data-parallel workers."""
    if suite.gpus() < 2:
        raise LeftOut("one GPU")
    folder, _, wrong = zoo(suite, "zoo_workers", "--models", "alexnet", "resnet50", "--modes", "classic", "--workers", "2")
    conclude(wrong + paper(suite, os.path.join(folder, "classic"))[0])


def how_many(suite, model, share, *arguments):
    """Jobs of a model that train together in so many GiB: {policy: number}."""
    found = {}
    for policy, flags in (("classic", []), ("compact", zoo_run.COMPACT)):
        under = shlex.join([suite.memprof, "record", "--no-trace", *flags, "--"])
        done = suite.run([PYTHON, os.path.join(HERE, "how_many.py"), "--model", model, "--share", str(share), "--under", under, *arguments], expect=None)
        print(done.stdout, flush=True)
        differ = re.search(r"^losses differ.*$", done.stdout, re.M)
        if differ:
            raise Failed(f"{model}, {policy}: {differ.group()}")
        together = re.search(r"^together (\d+) in", done.stdout, re.M)
        if not together:
            raise Failed(f"{model}, {policy}: no result:\n{done.stdout}\n{done.stderr[-2000:]}")
        found[policy] = int(together.group(1))
    suite.figure(f"jobs of {model} that train together in {share} GiB, classic / compact", f"{found['classic']} / {found['compact']}")
    if found["compact"] <= found["classic"]:
        raise Failed(f"{model}: no more jobs fit with preset compact: {found}")


@alone
def how_many_resnet50(suite):
    how_many(suite, "resnet50", 40)


@alone
def how_many_gpt2(suite):
    how_many(suite, "gpt2", 40, "--batch", "8")
