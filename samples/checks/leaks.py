"""The verdict on leaks, and the line of code that holds them, for 28 small jobs."""

import concurrent.futures
import os
import re

from checks.suite import Failed, case

VERDICT = {"leak": "\nLeak: +", "none": "\nNo leak."}  # how the line of the first screen begins


def line_of(script, job):
    """The line that leaks, as the report names it; None for memory that a library takes."""
    with open(script) as f:
        for number, line in enumerate(f, 1):
            if line.endswith(f"  # leaks: {job}\n"):
                return f"{os.path.basename(script)}:{number}"
    return None


def judged(suite, script, job, verdict):
    """Records a job. Returns what is wrong with its verdict, or None."""
    directory, _ = suite.record(job, suite.job("leaks", "--job", job), "-q", "--stacks", "python")
    found = suite.report(directory)["processes"][0]["devices"][0]["leak"]
    screen = suite.run([suite.memprof, "report", directory]).stdout
    if found["verdict"] != verdict or VERDICT[verdict] not in screen:
        return f"{job}: {found}, expected {verdict}"
    wanted = line_of(script, job)
    if verdict == "leak" and wanted and (os.path.basename(found.get("line", "")) != wanted or wanted not in screen):
        return f"{job}: the leak is in {found.get('line')}, expected {wanted}"
    return None


@case
def leak_verdicts(suite):
    """14 jobs leak, and the first screen names their lines; 14 do not."""
    script = suite.job("leaks")[-1]
    jobs = re.findall(r"^(\w+) (leak|none)$", suite.run([*suite.job("leaks"), "--list"]).stdout, re.M)
    counts = [sum(verdict == wanted for _, verdict in jobs) for wanted in VERDICT]
    if counts != [14, 14]:
        raise Failed(f"{counts} jobs, expected 14 and 14")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        wrong = [text for text in pool.map(lambda found: judged(suite, script, *found), jobs) if text]
    suite.figure("leaks: verdicts of 14 jobs that leak and 14 that do not", f"{len(jobs) - len(wrong)} of {len(jobs)} right", str(len(jobs)))
    if wrong:
        raise Failed("; ".join(wrong))
