"""The plan of an engine from a short recording of its start, against starts with what it advises."""

import json
import re

from checks.graph_shapes import mib
from checks.suite import Failed, alone

SHAPES = {"7b": "7B, attention in all layers", "hybrid": "attention in every fourth layer, states in others"}
LISTS = "pieces:64..1024/60;whole:1,2,4,8..248/8,256..512/16"  # what the job captures: 17 in pieces, 51 whole
STARTS = 10  # of each shape
OFF, TOKENS = 0.02, 0.99


def engine(output):
    """The tokens of the job's cache, its bytes, those of its graphs, and those that were free at the end."""
    found = re.search(r"^engine: (\d+) tokens, (\d+) bytes of KV cache, (\d+) of graphs, (\d+) free$", output, re.M)
    if not found:
        raise Failed(f"the job said nothing of its engine:\n{output[-2000:]}")
    return tuple(int(number) for number in found.groups())


def planned(suite, name, shape):
    """What three captures of each list say."""
    directory, _ = suite.record(name, suite.job("engine_start", "--shape", shape, "--few", "3"), "--allocator", "native")
    suite.verified(directory)
    plan = json.loads(suite.run([suite.memprof, "fit", "--json", "--engine=" + LISTS, directory]).stdout)
    parts = (
        "weights", "workspaces", "activations", "graphs", "driver_for_graphs", "nccl", "other_libraries", "driver", "other_processes", "left_for_kv",
    )
    if sum(plan[part] for part in parts) != plan["total"]:
        raise Failed(f"{shape}: the parts do not add up to the card: {plan}")
    unknown = [(graphs["name"], graphs["why"]) for graphs in plan["graph_lists"] if graphs["why"]]
    if unknown or not plan["graphs_predicted"]:
        raise Failed(f"{shape}: graphs are not predicted: {unknown}")
    return plan


@alone
def engine_plan(suite):
    """Graphs from three captures of each list, and starts with the advised cache: none fails, and a hundredth more tokens do."""
    for shape, what in SHAPES.items():
        plan = planned(suite, f"engine-{shape}", shape)
        start = suite.job("engine_start", "--shape", shape, "--kv-cache-memory-bytes")
        held = [engine(suite.run([*start, str(plan["kv"])]).stdout) for _ in range(STARTS)]
        graphs, off = held[0][2], plan["graphs"] / held[0][2] - 1
        suite.figure(f"engine plan, {what}: graphs of 68 sizes from three of each list / measured / by vLLM's formula",
                     f"{mib(plan['graphs'])} / {mib(graphs)} / {mib(plan['graphs_estimate_of_vllm'])} MiB, off by {off:+.2%}", f"{OFF:.0%}")
        if abs(off) > OFF:
            raise Failed(f"{shape}: graphs of {plan['graphs']} bytes were predicted, {graphs} are there")
        parts = ("activations", "driver", "driver_for_graphs", "other_libraries", "other_processes", "margin")
        suite.figure(f"engine plan, {what}: free after these starts; planned {', '.join(part.replace('_', ' ') for part in parts)}",
                     f"{mib(min(of[3] for of in held))}; {', '.join(str(mib(plan[part])) for part in parts)} MiB")
        tokens = min(of[0] for of in held)
        suite.figure(f"engine plan, {what}: starts with the advised cache, tokens", f"{STARTS} of {STARTS}, {tokens}; planned {plan['kv_tokens']}")
        if abs(tokens - plan["kv_tokens"]) > 16:
            raise Failed(f"{shape}: {plan['kv_tokens']} tokens were planned, the engine has {tokens}")
        more = plan["kv_fixed"] + int((plan["kv"] - plan["kv_fixed"]) / TOKENS)
        done = suite.run([*start, str(more)], expect=None)
        suite.figure(f"engine plan, {what}: a start with 1/{TOKENS} of these tokens", f"exit {done.returncode}", "fails: the most is less")
        if done.returncode == 0:
            raise Failed(f"{shape}: {engine(done.stdout)[0]} tokens fit, {tokens} were advised: less than {TOKENS:.0%}")
        if "out of memory" not in done.stderr:
            raise Failed(f"{shape}: the start with more tokens failed otherwise:\n{done.stderr[-2000:]}")
