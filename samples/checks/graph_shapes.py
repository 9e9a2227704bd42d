"""CUDA graphs of a small decoder at many shapes, under nine policies: memory, results and time."""

import json
import re

from checks.suite import Failed, alone, case

KEPT = ("separate", "shared-largest", "shared-smallest")  # logits stay in the pool
COPIED = tuple(policy + "-copied" for policy in KEPT)  # logits are copied to a buffer outside of the pool, as with graph memory
ORDINARY = KEPT + COPIED
OURS = ("memprof-largest", "memprof-smallest", "memprof-random")
SIZES = {"decode": [2**k for k in range(8)], "prefill": list(range(128, 257, 16))}
FAMILIES = tuple(SIZES)


def mib(size):
    return "-" if size is None else f"{size / 2**20:.0f}"


def lines(output, policies):
    """The table of the job, by policy and family; all graphs gave what eager work does."""
    found = [text for text in output.splitlines() if text.startswith('{"policies"')]
    if len(found) != 1:
        raise Failed(f"one line of JSON was expected:\n{output[-2000:]}")
    table = {(line["policy"], line["family"]): line for line in json.loads(found[0])["policies"]}
    missing = [(policy, family) for policy in policies for family in FAMILIES if (policy, family) not in table]
    if missing:
        raise Failed(f"the job left out {missing}")
    wrong = {key: line["wrong"] for key, line in table.items() if line["wrong"]}
    if wrong:
        raise Failed(f"replays that differ from eager work, by policy and family: {wrong}")
    return table


def results(output):
    """Checks that hold whatever policies ran."""
    return sorted(re.findall(r"^result (?:decode|prefill) .*$", output, re.M))


def sizes_hold(output, table, family):
    """Checks how the sizes of a family of shapes compare."""
    physical = {policy: table[policy, family]["physical"] for policy in ORDINARY + OURS}
    largest = table["memprof-largest", family]["max"]
    other = {policy: size for policy, size in physical.items() if policy in OURS and size != largest}
    if other:
        raise Failed(f"{family}: graph memory takes {largest} bytes for the largest shape, and {other}")
    steps = [int(size) for size in re.findall(rf"^step memprof-largest {family} \d+ (\d+)$", output, re.M)]
    if len(steps) != table["memprof-largest", family]["graphs"] or set(steps[1:]) != {largest}:
        raise Failed(f"{family}: not constant from the second capture on, which follows the largest: {steps}")
    shared = physical["shared-largest"], physical["shared-smallest"]
    if not physical["separate"] > max(shared) or not min(shared) >= largest:
        raise Failed(f"{family}: separate > shared >= graph memory was expected: {physical}")
    if not physical["separate-copied"] > max(physical["shared-largest-copied"], physical["shared-smallest-copied"]):
        raise Failed(f"{family}: separate > shared was expected of those that copy their logits: {physical}")
    alone_largest = table["separate", family]["max"]
    if largest > alone_largest:
        raise Failed(f"{family}: graph memory takes {largest} bytes, a private pool of the largest shape {alone_largest}")
    sums = {policy: table[policy, family]["sum"] for policy in OURS}
    if min(sums.values()) <= largest:
        raise Failed(f"{family}: the shapes together take no more than the largest, {largest}: {sums}")


@alone
def graph_shapes(suite):
    """Graph memory is as large as the largest shape, in every order; shared pools are larger, separate ones the sum."""
    plain = suite.run(suite.job("graph_shapes")).stdout
    lines(plain, ORDINARY)
    directory, done = suite.record("graph_shapes", suite.job("graph_shapes", "--steps"))
    suite.verified(directory)
    table = lines(done.stdout, ORDINARY + OURS)
    for family in FAMILIES:
        policies = ", ".join(ORDINARY + OURS)
        for what in ("physical", "buffers", "total", "sum", "addresses"):
            sizes = ", ".join(mib(table[policy, family][what]) for policy in ORDINARY + OURS)
            suite.figure(f"graph shapes, {family}: {what} of {policies}", sizes + " MiB")
        for what in ("capture_ms", "replay_us"):
            times = ", ".join(f"{table[policy, family][what]:.2f}" for policy in ORDINARY + OURS)
            suite.figure(f"graph shapes, {family}: {what} of {policies}", times)
        together = {policy: table[policy, family]["total"] for policy in (*COPIED, "memprof-largest")}
        for policy in COPIED:
            suite.figure(f"graph shapes, {family}: pool and buffers, memprof / {policy}",
                         f"{mib(together['memprof-largest'])} / {mib(together[policy])} MiB = {together['memprof-largest'] / together[policy]:.2f}")
        sizes_hold(done.stdout, table, family)
        ours = max(table[policy, family]["replay_us"] for policy in OURS)
        ordinary = table["separate-copied", family]["replay_us"]
        suite.figure(f"graph shapes, {family}: replay, ours / separate pools of the same kernels", f"{ours / ordinary:.3f}", "1 within noise")
        if ours > 1.02 * ordinary:
            raise Failed(f"{family}: a replay takes {ours:.1f} us, in separate pools {ordinary:.1f}")
    if results(done.stdout) != results(plain):
        raise Failed(f"eager logits differ: unrecorded {results(plain)}, recorded {results(done.stdout)}")
    reported(suite.report(directory), table)


def reported(report, table):
    """The report's stores have the sizes that the job measured, and add up."""
    stores = report["processes"][0]["devices"][0]["graphs"]["stores"]
    for store in stores:
        of = store["graph_memory"] or store["pool"]
        if store["sum"] != store["distinct"] + store["saved"] or store["physical"] != store["distinct"] + store["untouched"]:
            raise Failed(f"the store {of} does not add up: {dict(store, shapes=None)}")
        if store["sum"] != sum(shape["own"] + shape["shared"] for shape in store["shapes"]):
            raise Failed(f"the shapes of {of} do not add up to {store['sum']}")
    memories = [store for store in stores if store["graph_memory"]]
    for k, (policy, family) in enumerate((policy, family) for policy in OURS for family in FAMILIES):
        line = table[policy, family]
        if k >= len(memories):
            raise Failed(f"{len(memories)} graph memories are reported, {len(OURS) * len(FAMILIES)} were made")
        found = {key: memories[k][key] for key in ("physical", "sum", "max")}
        want = {key: line[key] for key in found}
        inputs = {"inputs_max": 8 * max(SIZES[family]), "inputs_sum": 8 * sum(SIZES[family])}
        if inputs != {key: memories[k][key] for key in inputs}:
            raise Failed(f"{policy}, {family}: persistent inputs of {inputs} bytes, the report says {dict(memories[k], shapes=None)}")
        if found != want or len(memories[k]["shapes"]) != line["graphs"]:
            raise Failed(f"{policy}, {family}: the report says {found} of {len(memories[k]['shapes'])} shapes, the job {want} of {line['graphs']}")


@case
def graph_shapes_what_if(suite):
    """The replay of a recording with separate pools predicts the sizes of other policies."""
    for family in FAMILIES:
        chosen = [word for policy in (*KEPT, "memprof-largest") for word in ("--policy", policy)]
        _, done = suite.record(f"graph_shapes-{family}", suite.job("graph_shapes", "--family", family, "--replays", "0", *chosen))
        found = [json.loads(text)["policies"] for text in done.stdout.splitlines() if text.startswith('{"policies"')]
        if not found:
            raise Failed(f"no line of JSON:\n{done.stdout[-2000:]}")
        measured = {line["policy"]: line["physical"] for line in found[0]}
        directory, _ = suite.record(f"graph_shapes-{family}-separate",
                                    suite.job("graph_shapes", "--family", family, "--replays", "0", "--policy", "separate"))
        what_if = suite.report(directory)["processes"][0]["devices"][0]["graphs"]["what_if"]
        if len(what_if) != 1 or what_if[0]["why"]:
            raise Failed(f"{family}: one replay of all shapes was expected: {what_if}")
        said = what_if[0]
        pairs = {
            "separate": (said["recorded"], said["physical"]),
            "shared-largest": (said["shared_largest_first"], measured["shared-largest"]),
            "shared-smallest": (said["shared_smallest_first"], measured["shared-smallest"]),
            "memprof-largest": (said["aliased"], measured["memprof-largest"]),
        }
        compared = ", ".join(f"{mib(a)} / {mib(b)}" for a, b in pairs.values())
        suite.figure(f"graph shapes, {family}: replayed / measured, " + ", ".join(pairs), compared + " MiB")
        off = {policy: pair for policy, pair in pairs.items() if pair[0] != pair[1]}
        if off:
            raise Failed(f"{family}: replayed and measured bytes differ: {off}")
