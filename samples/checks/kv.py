"""KV caches of transformers: the recording compared with what the job knows."""

import json
import os

from checks.suite import HERE, Failed, alone, case, first_process, number

LENGTHS = os.path.join(HERE, "jobs", "azure_conv_2023.csv")


def serve(suite, cache, *arguments):
    """What the job printed, and the report's account of its KV cache."""
    directory, done = suite.record("kv_" + cache, suite.job("kv_serving", "--cache", cache, "--lengths", LENGTHS, *arguments))
    lines = [line for line in done.stdout.splitlines() if line.startswith("kv_serving ")]
    if len(lines) != 1:
        raise Failed(f"{cache}: no result line:\n{done.stdout[-1500:]}")
    if "KV cache of" in done.stderr:
        raise Failed(f"{cache}: the adapter gave up: {[line for line in done.stderr.splitlines() if 'KV cache of' in line]}")
    suite.verified(directory)
    device = first_process(suite.report(directory))["devices"][0]
    reported = device.get("kv_caches") or []
    if len(reported) != 1:
        raise Failed(f"{cache}: {len(reported)} KV caches are reported, want 1: {[(k['engine'], k['caches']) for k in reported]}")
    if reported[0]["fault"]:
        raise Failed(f"{cache}: {reported[0]['fault']}")
    return json.loads(lines[0].split(" ", 1)[1]), reported[0], reported[0]["policies"][0]


def check_sum(cache, mean):
    total = sum(mean[term] for term in ("token", "reserve", "internal", "external", "idle", "cached", "null"))
    if abs(total - 1) > 1e-6:
        raise Failed(f"{cache}: the shares add up to {total}: {mean}")


def show(suite, cache, job, kv, recorded):
    mean = recorded["mean"]
    check_sum(cache, mean)
    shares = ", ".join(f"{term} {100 * mean[term]:.1f}" for term in ("token", "reserve", "internal", "external", "idle", "cached"))
    suite.figure(f"{cache}: share of {kv['slots']} slots in the mean, %", shares)
    suite.figure(f"{cache}: sequences at once in the mean, at most", f"{recorded['batch']:.2f}, {recorded['peak_batch']}")
    suite.figure(f"{cache}: seconds for {job['requests']} requests, {job['tokens']} tokens", f"{job['seconds']:.1f}")
    for policy in kv["policies"][1:]:
        suite.figure(f"{cache}: the same requests under {policy['policy']}: token %, batch", f"{100 * policy['mean']['token']:.1f}, {policy['batch']:.2f}")


def near(cache, what, found, known, within):
    if abs(found - known) > within:
        raise Failed(f"{cache}: {what} is {found:.4f} by the recording, and {known:.4f} by the lengths")


def batches(suite, cache, engine):
    job, kv, recorded = serve(suite, cache)
    show(suite, cache, job, kv, recorded)
    if kv["engine"] != engine:
        raise Failed(f"{cache}: the engine is {kv['engine']!r}, want {engine!r}")
    if kv["bytes_per_token"] != job["token_bytes"]:
        raise Failed(f"{cache}: {kv['bytes_per_token']} bytes a token are recorded, and it has {job['token_bytes']}")
    if (recorded["requests"], recorded["finished"]) != (job["requests"], job["requests"]):
        raise Failed(f"{cache}: {recorded['requests']} sequences began and {recorded['finished']} ended of {job['requests']}")
    # One step is counted for each token but the first of a batch, whose keys come with the prompt.
    if not job["steps"] - 2 * kv["caches"] <= recorded["steps"] <= job["steps"] + 2 * kv["caches"]:
        raise Failed(f"{cache}: {recorded['steps']} steps are recorded, and the lengths have {job['steps']}")
    near(cache, "the token share", recorded["mean"]["token"], job["split"]["token"], 0.01)
    near(cache, "the internal share", recorded["mean"]["internal"], job["split"]["internal"], 0.01)
    near(cache, "the batch", recorded["batch"], job["running"], 0.05 * job["batch"] + 0.2)
    return job, kv, recorded


@case
def kv_static_cache(suite):
    """StaticCache in generate, without a mark: the recording divides the slots as the lengths of the sequences do."""
    job, kv, recorded = batches(suite, "static", "transformers StaticCache")
    free = recorded["mean"]["external"] + recorded["mean"]["idle"]
    if free > 0.02:
        raise Failed(f"static: {free:.3f} of the slots are external or idle, though each sequence has a row")


@case
def kv_dynamic_cache(suite):
    """DynamicCache in generate, likewise."""
    job, kv, recorded = batches(suite, "dynamic", "transformers DynamicCache")
    if kv["slots"] > job["slots"]:
        raise Failed(f"dynamic: {kv['slots']} slots are recorded, and {job['slots']} are the most that a batch may have")


@case
def kv_continuous_batching(suite):
    """Continuous batching, without a mark: tokens fill nearly all blocks in use."""
    job, kv, recorded = serve(suite, "continuous")
    show(suite, "continuous", job, kv, recorded)
    if not kv["block"]:
        raise Failed(f"continuous: no blocks are recorded: {kv['engine']}")
    if kv["bytes_per_token"] != job["token_bytes"]:
        raise Failed(f"continuous: {kv['bytes_per_token']} bytes a token are recorded, and it has {job['token_bytes']}")
    if recorded["finished"] < job["requests"]:
        raise Failed(f"continuous: {recorded['finished']} sequences went of {job['requests']}")
    mean = recorded["mean"]
    held = mean["token"] + mean["reserve"] + mean["internal"]
    if mean["internal"] > 0.1 * held:
        raise Failed(f"continuous: {mean['internal']:.3f} of the slots are lost inside blocks, of {held:.3f} held")


@alone
def kv_marks_cost(suite):
    """The cost of the adapter: the same batches, recorded with and without attribution."""
    fast, slow = (
        number(r'"seconds": ([0-9.]+)', suite.record("kv_cost", suite.job("kv_serving", "--requests", "32", "--lengths", LENGTHS), "--attribution", level)[1].stdout)
        for level in ("none", "modules")
    )
    suite.figure("32 requests in a StaticCache: seconds with attribution / without", f"{slow / fast:.3f} ({slow:.2f} / {fast:.2f})")


@case
def kv_beams(suite):
    """Beams in generate, with and without sampling: each beam is a sequence in a row of its own."""
    directory, done = suite.record("kv_beams", suite.job("kv_beams"))
    if "KV cache of" in done.stderr:
        raise Failed(f"the adapter gave up: {[line for line in done.stderr.splitlines() if 'KV cache of' in line]}")
    suite.verified(directory)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("kv_beams ")]
    known, of_kind = json.loads(line.split(" ", 1)[1]), {}
    for kv in first_process(suite.report(directory))["devices"][0].get("kv_caches") or []:
        if kv["fault"]:
            raise Failed(f"{kv['engine']} of {kv['beams'] or 1} beams: {kv['fault']}")
        recorded = kv["policies"][0]
        sums = of_kind.setdefault("%s %d" % ("static" if "Static" in kv["engine"] else "dynamic", kv["beams"] or 1), dict(caches=0, sequences=0, most=0))
        sums["caches"] += kv["caches"]
        sums["sequences"] += recorded["finished"]
        sums["most"] = max(sums["most"], recorded["peak_batch"])
    if of_kind != known:
        raise Failed(f"for caches and beams the recording has\n{json.dumps(of_kind, sort_keys=True)}\nand the job\n{json.dumps(known, sort_keys=True)}")
    suite.figure("beams: caches, sequences", ", ".join(f"{name}: {sums['caches']}, {sums['sequences']}" for name, sums in sorted(of_kind.items())))
