"""A trainer and an engine on one card: both resident, restarted, resumed together, resumed on use."""

import json
import os

from checks.side_by_side import foreign
from checks.suite import PYTHON, Failed, alone, two_gpus_only

VARIANTS = ("resident", "restart", "together", "on_use")
FOUND = {}  # what each variant printed


def line(output):
    """The line of JSON that the job printed."""
    lines = [text for text in output.splitlines() if text.startswith('{"variant"')]
    if len(lines) != 1:
        raise Failed(f"one line of JSON was expected:\n{output[-2000:]}")
    return json.loads(lines[0])


def gib(size):
    return f"{size / 2**30:.2f}"


def variants(suite):
    """Each variant recorded and verified, once for all cases: (directory, what it printed) by name."""
    for name in VARIANTS:
        if name not in FOUND:
            directory, done = suite.record("colocated-" + name, suite.job("rl_colocated", "--variant", name))
            suite.verified(directory)
            FOUND[name] = directory, line(done.stdout)
    return FOUND


def keep_figures(suite, name, found):
    first, again = (a + b for a, b in zip(found["to_rollout_ms"][:2], found["to_training_ms"][:2]))
    suite.figure(f"colocated, {name}: peak reserved / context and libraries, GiB", f"{gib(found['peak'])} / {gib(found['not_reserved'])}")
    suite.figure(f"colocated, {name}: to the rollout and back, the first / the next / median", f"{first:.0f} / {again:.0f} / {found['switch_ms']:.0f} ms")


@alone
def colocated_variants(suite):
    """All four variants generate the same; each reserves less at its peak than the one before."""
    found = {name: printed for name, (_, printed) in variants(suite).items()}
    for name, printed in found.items():
        keep_figures(suite, name, printed)
    sizes = found["on_use"]["sizes"]
    suite.figure("colocated, GiB of " + ", ".join(sizes), ", ".join(gib(size) for size in sizes.values()))
    want = found["resident"]["generated"]
    if want[0] == want[1]:
        raise Failed(f"after a step of training the rollout is the same, so the weights were not synced: {want}")
    other = {name: printed["generated"] for name, printed in found.items() if printed["generated"] != want}
    if other:
        raise Failed(f"resident generated {want}, and {other}")
    peaks = [found[name]["peak"] for name in VARIANTS]
    if sorted(peaks, reverse=True) != peaks or len(set(peaks)) != len(peaks):
        raise Failed(f"the peaks of {VARIANTS} should fall: {peaks}")
    engine = sum(sizes[part] for part in ("rollout_weights", "kv_cache", "buffers", "graphs"))
    least = peaks[VARIANTS.index("together")] - peaks[VARIANTS.index("on_use")]
    if least < sizes["weights"] // 2:
        raise Failed(f"resuming on use saves {least} bytes; expected at least half of the trainer's weights, {sizes['weights']}, with an engine of {engine}")


def check_plans(suite, name, pause, printed):
    """Checks what the report says of stages and resume plans."""
    stages = {stage["name"]: stage for stage in pause["stages"]}
    if pause["stages_are"] != "phases" or set(stages) != {"train", "sync", "rollout"} or not all(stage["uses_given"] for stage in stages.values()):
        raise Failed(f"{name}: stages {pause['stages_are']}, {stages}")
    unneeded, kv = stages["sync"]["unneeded"], printed["kv"]
    if (unneeded >= kv) != (name == "together") or (name == "on_use" and unneeded > kv // 10):
        raise Failed(f"{name}: {unneeded} bytes are resident in the sync and not needed; the KV cache has {kv}")
    plans = {plan["name"]: plan for plan in pause["plans"]}
    recorded, least = plans["recorded"]["peak"], plans["on_use"]["peak"]
    # The plan adds the greatest size of each tag, which may be of different moments.
    if recorded < 0.95 * least or (name == "on_use") != (recorded <= 1.05 * least):
        raise Failed(f"{name}: peak {recorded}, resumed on use it would be {least}")
    shares = [f"{100 * plan['kv_fraction']:.1f} %" if plan["kv_fraction"] else "none" for plan in plans.values()]
    suite.figure(f"colocated, {name}: largest KV of the card, " + ", ".join(plans), ", ".join(shares))


RESIDUE = 50 << 20  # bytes of the card that a paused engine may keep, besides the context with the code in it


@alone
def colocated_residue(suite):
    """What an engine that is paused after a rollout keeps of the card: the context, code of kernels, and next to nothing."""
    directory, done = suite.record("colocated-engine", suite.job("rl_colocated", "--variant", "on_use", "--only-engine"))
    suite.verified(directory)
    used, end = line(done.stdout)["used"], suite.report(directory)["processes"][0]["devices"][0]["accounting"]["end"]
    code = end["driver_overhead"] - end["context"]
    residue = used["engine_paused"] - used["context"] - code
    parts = {"a context alone": used["context"], "the engine paused": used["engine_paused"], "code loaded meanwhile": code, "other libraries": end["other_libraries"], "the allocator": used["engine_paused_reserved"]}
    suite.figure("colocated, MiB of the card: " + " / ".join(parts), " / ".join(f"{part / 2**20:.0f}" for part in parts.values()))
    if residue > RESIDUE:
        raise Failed(f"the paused engine keeps {residue} bytes besides context and code, more than {RESIDUE}: {end}")


@alone
def colocated_memory_saver(suite):
    """The variant resumed on use with torch_memory_saver and PyTorch's allocator, timed after memprof's: the same is generated."""
    folder = foreign("torch_memory_saver")
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    theirs = line(suite.run(["env", "PYTHONPATH=" + path, *suite.job("rl_colocated", "--variant", "on_use", "--saver", "torch_memory_saver")]).stdout)
    ours = variants(suite)["on_use"][1]
    for name, found in (("memprof", ours), ("torch_memory_saver", theirs)):
        suite.figure(f"colocated, on_use, {name}: most of the card in use / to the rollout and back, median", f"{gib(found['peak_used'])} GiB / {found['switch_ms']:.0f} ms")
    if theirs["generated"] != ours["generated"]:
        raise Failed(f"torch_memory_saver generated {theirs['generated']}, memprof {ours['generated']}")


@alone
def colocated_transitions(suite):
    """The report has the transitions, what was resident and not needed, and the resume plan with the lowest peak."""
    for name in ("together", "on_use"):
        directory, printed = variants(suite)[name]
        device = suite.report(directory)["processes"][0]["devices"][0]
        transitions = device["transitions"]
        failed = [t for t in transitions if t["failed"]]
        if failed or not transitions:
            raise Failed(f"{name}: {len(transitions)} transitions, failed {failed}")
        # Resumed together, the engine and the trainer's weights are resident before there is an optimizer to pause.
        if name == "on_use" and not device["peak"].get("paused"):
            raise Failed(f"{name}: nothing is paused at the peak, {device['peak']}")
        check_plans(suite, name, device["pause"], printed)
        resumed = {t["tag"] for t in transitions if t["resume"]}
        if resumed != {"rollout_weights", "kv_cache", "buffers", "graphs", "trainer_weights", "optimizer"}:
            raise Failed(f"{name}: resumed {resumed}")
    section = suite.run([suite.memprof, "report", "--section", "pauses", directory]).stdout
    if not all(tag in section for tag in resumed):
        raise Failed("the report's section on pauses lacks a tag:\n" + section[-2000:])


@alone
def colocated_card(suite):
    """A card on which only the variant resumed on use fits: the others print where they fail."""
    known = {name: printed for name, (_, printed) in variants(suite).items()}
    on_use, next_best = known["on_use"], min(known[name]["peak"] for name in VARIANTS if name != "on_use")
    card = max(printed["not_reserved"] for printed in known.values()) + (on_use["peak"] + next_best) // 2
    suite.figure("colocated: a card of", gib(card) + " GiB")
    for name in VARIANTS:
        done = suite.run([suite.memprof, "record", "--no-trace", "--", *suite.job("rl_colocated", "--variant", name, "--card", str(card))])
        printed = line(done.stdout)
        suite.figure(f"colocated on that card, {name}", "fits" if printed["fits"] else f"no: {printed['place']}, {printed['error'][:90]}")
        if printed["fits"] != (name == "on_use"):
            raise Failed(f"{name} on a card of {card} bytes: {printed}")
        if printed["fits"] and printed["generated"] != on_use["generated"]:
            raise Failed(f"on the small card {printed['generated']}, on the whole one {on_use['generated']}")


@two_gpus_only
@alone
def colocated_ranks(suite):
    """Shards of FSDP2 on two GPUs, whole weights in each rank's engine, ranks that resume at the same time."""
    if suite.gpus() < 2:
        suite.lines.append("  one GPU here: nothing to shard over")
        return
    found = {}
    for name in ("resident", "on_use"):
        command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *suite.job("rl_colocated", "--variant", name)[1:]]
        directory, done = suite.record("ranks-" + name, command)
        suite.verified(directory)
        processes = sorted(process["process"] for process in suite.report(directory)["processes"])
        if processes != ["rank0", "rank1"]:
            raise Failed(f"{name}: processes {processes}")
        found[name] = line(done.stdout)
        keep_figures(suite, f"two ranks, {name}", found[name])
    resident, on_use = found["resident"], found["on_use"]
    if resident["generated"] != on_use["generated"] or len(on_use["generated"]) != 2:
        raise Failed(f"resident generated {resident['generated']}, on use {on_use['generated']}")
    if not on_use["peak"] < resident["peak"]:
        raise Failed(f"peaks: on use {on_use['peak']}, resident {resident['peak']}")
