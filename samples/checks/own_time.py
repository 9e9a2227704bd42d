"""Host time of a policy, measured within the jobs.

Where the card waits for the host, steps of two equal processes differ by up to a tenth, so medians of their
ratios vary by some percent. Kernels are the same under each policy. What differs is the time in the hook's
calls, and jobs/own_time.c measures exactly that: it is loaded in front of the hook.
"""

import os
import statistics

import in_turns
import zoo_run
from checks.suite import JOBS, PYTHON, UNDER, Failed, alone

POLICIES = {"classic": [], "compact": zoo_run.COMPACT}
FIRST = 90  # iterations until plans are made and hold, and pages of compact stay where they are
TURNS, OF_ITERATIONS = 4, 10
ROOM = 124 * (1 << 30)
MOST = 0.01  # of a step, by which compact may be longer
MOST_IRREGULAR = {"moe": 0.03}  # the same of a job whose iterations differ: its experts get other numbers of tokens in each


def library(suite):
    path = os.path.join(suite.work, "own_time.so")
    source = os.path.join(JOBS, "own_time.c")
    suite.run(["cc", "-std=c11", "-Wall", "-Wextra", "-O2", "-shared", "-fPIC", "-o", path, source, "-ldl"])
    return os.path.abspath(path)


def groups(models, room):
    """Models whose jobs are alive together, the largest first."""
    rest = sorted(models, key=lambda model: -zoo_run.NEEDS[model])
    while rest:
        left, group = room, []
        for model in list(rest):
            needs = len(POLICIES) * zoo_run.NEEDS[model] << 30
            if needs <= left or not group:
                group.append(model)
                rest.remove(model)
                left -= needs
        yield group


class Trained:
    """A job of a model under a policy."""

    def __init__(self, suite, preload, model, policy, card, names):
        base = os.path.join(suite.work, f"{model}-{policy}")
        self.times, self.steps = base + ".times", []
        env = dict(os.environ, CUDA_VISIBLE_DEVICES=names[card], OWN_TIME=self.times)
        env.setdefault("OMP_NUM_THREADS", "2")
        job = [PYTHON, os.path.join(JOBS, "zoo.py"), "--model", model, "--in-turns"]
        command = [suite.memprof, "record", "-q", "--force", "-o", base, *POLICIES[policy], "--", "sh", "-c", UNDER, preload, *job]
        self.job = in_turns.Job(command, base + ".err", env, (card, len(names)))

    def turn(self):
        self.job.ask(OF_ITERATIONS)
        self.steps += self.job.steps_of_turn(120)[1:]

    def own(self):
        """Milliseconds of an iteration in the hook, the median of those in turns; and its requests."""
        with open(self.times) as f:
            rows = [[int(word) for word in line.split()] for line in f][FIRST:]
        if len(rows) < TURNS * OF_ITERATIONS or min(row[3] for row in rows) == 0:
            raise Failed(f"{self.times}: {len(rows)} iterations were timed, of {TURNS * OF_ITERATIONS}, or some without requests")
        return statistics.median(sum(row[:3]) for row in rows) / 1e6, statistics.median(row[3] for row in rows)


def train(suite, preload, models, card, names):
    """{model: {policy: Trained}}, each trained in turns."""
    jobs = {model: {policy: Trained(suite, preload, model, policy, card, names) for policy in POLICIES} for model in models}
    trained = [job for of in jobs.values() for job in of.values()]
    try:
        for job in trained:
            job.job.ask(FIRST)
        for job in trained:
            job.job.steps_of_turn(180)
            job.job.pin()
        for _ in range(TURNS):
            for job in trained:
                job.turn()
            trained.reverse()
    finally:
        ends = [job.job.end()[0] for job in trained]
    if any(ends):
        raise Failed(f"exits {ends}")
    return jobs


def compared(suite, model, jobs):
    """Keeps the host time of a policy as a figure. Returns what is wrong if it is above the bound."""
    own = {policy: job.own() for policy, job in jobs.items()}
    step = min(statistics.median(job.steps) for job in jobs.values())
    share = (own["compact"][0] - own["classic"][0]) / step
    text = f"{own['classic'][0]:.3f} / {own['compact'][0]:.3f} ms of {step:.2f}: {100 * share:+.2f} % of a step, {own['compact'][1]:.0f} requests"
    most = MOST_IRREGULAR.get(model, MOST)
    suite.figure(f"zoo: {model}: in the hook's calls, classic / compact", text, f"{100 * most:.0f} %")
    return [f"{model}: compact takes {100 * share:.2f} % of a step more of the host"] if share > most else []


@alone
def zoo_own_time(suite):
    """The host's time in the hook, compact against classic, of every model."""
    preload, names, done, wrong = library(suite), zoo_run.names_of_cards(), {}, []

    def work(models, card):
        try:
            done.update(train(suite, preload, models, card, names))
        except (Failed, in_turns.Stopped) as failed:  # the others' figures are worth having
            wrong.append(f"{', '.join(models)}: {failed}")

    in_turns.on_cards(len(names), groups(zoo_run.NEEDS, ROOM), work)
    for model in zoo_run.NEEDS:
        if model in done:
            wrong += compared(suite, model, done[model])
    if wrong:
        raise Failed("; ".join(wrong))
