"""Steps of jobs whose iterations differ: compact beside torch's expandable segments and classic."""

import json
import os

import in_turns
from checks.suite import Failed, alone

GIB = 1 << 30
KINDS = {"expandable": "expandable_segments:True", "classic": (), "compact": ("--preset", "compact")}
# Of each job: the most bytes of the card that one uses.
JOBS = {"moe64": 12 * GIB, "qlora": 14 * GIB, "detection": 6 * GIB, "serving": 12 * GIB, "growing": 24 * GIB, "graphs": 10 * GIB}
OF_EXPANDABLE, OF_CLASSIC = 1.02, 1.03
FORETOLD = 0.02  # by which `memprof fit` may miss a ratio of steps, beside what jobs of a kind differ by


def foretold(suite, name, rounds):
    """Compares compact's step with what `memprof fit` says of it from the recording under classic. Returns what is wrong."""
    rows = json.loads(suite.run([suite.memprof, "fit", "--json", os.path.join(suite.work, f"{name}-classic-0")]).stdout)["rows"]
    [row] = [row for row in rows if row["preset"] == "compact" and not row["handle"] and row["trim"] == "never"]
    measured = in_turns.ratio(rounds["compact"], rounds["classic"])[0]
    apart = max(in_turns.apart(rounds[kind]) or 0 for kind in ("compact", "classic"))
    suite.figure(f"{name}: step, compact / classic, predicted by fit and measured", f"{1 + row['slowdown']:.3f} and {measured:.3f}", f"{FORETOLD} apart")
    if abs(1 + row["slowdown"] - measured) > FORETOLD + apart:
        return f"{name}: fit predicts {1 + row['slowdown']:.3f} of classic's step under compact, measured {measured:.3f}"
    return None


@alone
def irregular_steps(suite):
    """Mixture of experts, adapters, detector, server, growing sequences, graphs: steps in turns, compact against both and fit's prediction."""
    wrong = []
    for name, memory in JOBS.items():
        job = suite.job("irregular", "--job", name)
        try:
            rounds = suite.rounds(name, job, KINDS, memory, pairs=2, seconds=18)
        except Failed as failed:  # the others' figures are worth having
            wrong.append(str(failed))
            continue
        if rounds is None:
            continue
        found = [suite.compared(name, "compact", "expandable", rounds, str(OF_EXPANDABLE), OF_EXPANDABLE), suite.compared(name, "compact", "classic", rounds, str(OF_CLASSIC), OF_CLASSIC), foretold(suite, name, rounds)]
        wrong += [text for text in found if text]
    if wrong:
        raise Failed("; ".join(wrong))
