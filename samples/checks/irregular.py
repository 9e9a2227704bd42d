"""Steps of jobs whose iterations differ: compact beside torch's expandable segments and classic."""

from checks.suite import Failed, alone

GIB = 1 << 30
KINDS = {"expandable": "expandable_segments:True", "classic": (), "compact": ("--preset", "compact")}
# Of each job: the most bytes of the card that one uses.
JOBS = {"moe64": 12 * GIB, "qlora": 14 * GIB, "detection": 6 * GIB, "serving": 12 * GIB, "growing": 24 * GIB}
OF_EXPANDABLE, OF_CLASSIC = 1.02, 1.03


@alone
def irregular_steps(suite):
    """A mixture of experts, adapters, a detector, a server, and sequences that grow: steps in turns, compact against both."""
    wrong = []
    for name, memory in JOBS.items():
        job = suite.job("irregular", "--job", name)
        try:
            rounds = suite.rounds(name, job, KINDS, memory, pairs=1, seconds=18)
        except Failed as failed:  # the others' figures are worth having
            wrong.append(str(failed))
            continue
        if rounds is None:
            continue
        found = [suite.compared(name, "compact", "expandable", rounds, str(OF_EXPANDABLE), OF_EXPANDABLE), suite.compared(name, "compact", "classic", rounds, str(OF_CLASSIC), OF_CLASSIC)]
        wrong += [text for text in found if text]
    if wrong:
        raise Failed("; ".join(wrong))
