"""Steps of jobs whose iterations differ: compact beside torch's expandable segments and classic.

Where the card waits for the host, equal processes differ by up to a tenth, and a ratio of their steps does not show two percent.
There a step is longer by what the host does more of: the time in the hook's calls, driver calls and waits included, which differs
by less than a hundredth of a step between processes. Where the card is the bottleneck, that time is hidden and the ratio is exact.
"""

import json
import os
import statistics

import in_turns
from checks.own_time import library
from checks.suite import FIRST, Failed, alone

GIB = 1 << 30
KINDS = {"expandable": "expandable_segments:True", "classic": (), "compact": ("--preset", "compact")}
# Of each job: what it is, and the most bytes of the card that one uses.
JOBS = {
    "moe64": ("a mixture of experts", 12 * GIB),
    "qlora": ("adapters", 14 * GIB),
    "detection": ("a detector", 6 * GIB),
    "serving": ("a server", 12 * GIB),
    "growing": ("sequences that grow", 24 * GIB),
    "graphs": ("batches of graphs", 10 * GIB),
}
OF_EXPANDABLE, OF_CLASSIC = 1.02, 1.03
FORETOLD = 0.02  # by which `memprof fit` may miss a ratio of steps


def in_hook(paths, steps):
    """The milliseconds of a step in the hook, of the median iteration after FIRST steps, for `steps` steps of jobs of a kind whose
    times are in those files. Of each iteration the least counts, as other work only adds. A server has several iterations a step."""
    jobs = []
    for path in paths:
        with open(path) as f:
            jobs.append([sum(map(int, line.split()[:3])) for line in f])
    if len(set(map(len, jobs))) != 1 or len(jobs[0]) < steps:
        raise Failed(f"{paths[0]}: {', '.join(str(len(job)) for job in jobs)} iterations were timed, of {steps} steps")
    later = list(zip(*jobs))[len(jobs[0]) * FIRST // steps :]
    return statistics.median(min(of) for of in later) / 1e6 * len(jobs[0]) / steps


def steady(rounds, base, most):
    """Whether jobs of one kind differ by less than the bound leaves: then the ratio of steps decides, else the time in the hook."""
    known = [in_turns.apart(rounds[kind]) for kind in ("compact", base)]
    return None not in known and max(known) <= most - 1


class Compared:
    """What is found wrong in the steps of a job."""

    def __init__(self, suite, name, rounds):
        self.suite, self.name, self.rounds = suite, name, rounds
        steps = FIRST + in_turns.LEAST + sum(len(turn[0]) + 1 for turn in rounds["compact"])
        jobs = range(len(rounds["compact"][0]))
        own = {kind: in_hook([os.path.join(suite.work, f"{name}-{kind}-{k}.times") for k in jobs], steps) for kind in ("classic", "compact")}
        step = statistics.median(in_turns.steps(rounds["compact"]))
        self.more = (own["compact"] - own["classic"]) / step  # of the host, as a share of a step
        text = f"{own['classic']:.3f} / {own['compact']:.3f} ms of {step:.2f}: {100 * self.more:+.2f} % of a step"
        suite.figure(f"{name}: in the hook's calls, classic / compact", text, f"{100 * (OF_EXPANDABLE - 1):.0f} %")

    def wrong(self):
        bounds = {"expandable": OF_EXPANDABLE, "classic": OF_CLASSIC}
        decided = {base: steady(self.rounds, base, most) for base, most in bounds.items()}
        for base, most in bounds.items():
            bound = (str(most), most) if decided[base] else ("by the time in the hook",)
            yield self.suite.compared(self.name, "compact", base, self.rounds, *bound)
        if not all(decided.values()) and self.more > OF_EXPANDABLE - 1:
            yield f"{self.name}: under compact the hook takes {100 * self.more:.2f} % of a step more than under classic"
        yield self.foretold()

    def foretold(self):
        """Compares compact's step with what `memprof fit` says of it from the recording under classic."""
        suite, recording = self.suite, os.path.join(self.suite.work, f"{self.name}-classic-0")
        rows = json.loads(suite.run([suite.memprof, "fit", "--json", recording]).stdout)["rows"]
        [row] = [row for row in rows if row["preset"] == "compact" and not row["handle"] and row["trim"] == "never"]
        by, measured = "the time in the hook", 1 + self.more
        if steady(self.rounds, "classic", 1 + FORETOLD):
            by, measured = "steps", in_turns.ratio(self.rounds["compact"], self.rounds["classic"])[0]
        suite.figure(f"{self.name}: compact / classic, predicted by fit and measured by {by}", f"{1 + row['slowdown']:.3f} and {measured:.3f}", f"{FORETOLD} apart")
        if abs(1 + row["slowdown"] - measured) > FORETOLD:
            return f"{self.name}: fit predicts {1 + row['slowdown']:.3f} of classic's step under compact, measured {measured:.3f}"
        return None


def steps_of(name, what, memory):
    """Makes the case of a job."""

    def compare(suite):
        rounds = suite.rounds(name, suite.job("irregular", "--job", name), KINDS, memory, seconds=18, preload=library(suite))
        if rounds is None:
            return
        wrong = [text for text in Compared(suite, name, rounds).wrong() if text]
        if wrong:
            raise Failed("; ".join(wrong))

    compare.__name__ = f"irregular_{name}"
    compare.__doc__ = f"Steps in turns of {what}: compact against expandable segments, classic and fit's prediction."
    return alone(compare)


for _name, (_what, _memory) in JOBS.items():
    steps_of(_name, _what, _memory)
