"""The acceptance suite in parts, each of at most LIMIT seconds on one H200 with nothing else on it.

A part is the cases of some files of this folder, or cases by name where one file has more than fit. Cases that one GPU is
not enough for are in the last part, beside those that do more with two. Results are kept by case in samples/results/parts.json:
{case: {"passed", "seconds", "memprof", "device"}}, and "failure", the end of what a case said that failed.
"""

import inspect
import json

from checks.suite import CASES, TWO

LIMIT = 480

PARTS = (
    ("basics",),
    ("accounting", "side_by_side", "engine_plan"),
    ("attribution", "attribution_cost", "export", "plugin", "memory_tests"),
    ("frameworks", "models"),
    ("graphs", "graph_memory", "graph_shapes"),
    ("own_time",),
    ("interposition", "numeric", "graph_memory_cost"),
    ("kv", "memory_savers", "pools", "offload"),
    ("native",),
    ("pause", "colocated"),
    ("policy", "streams", "readings", "shared_card"),
    ("processes", "parallel"),
    ("readers", "leaks", "dry", "torch_memory"),
    ("irregular",),
    ("zoo_small", "zoo_classic", "zoo_first_iterations"),
    ("zoo_four_allocators",),
    ("zoo_steps", "how_many_resnet50", "how_many_gpt2"),
    ("in_process",),
)
MORE_WITH_TWO = ("fsdp2_checkpointed", "tensor_parallel", "nccl_pools", "graph_memory_side_by_side", "ranks_side_by_side")


def home(name):
    """The file of this folder that a case stands in, without .py."""
    return inspect.getmodule(CASES[name]).__name__.removeprefix("checks.")


def cases(part):
    """The cases of part 1 to len(PARTS), or of the part for two GPUs, which is len(PARTS) + 1."""
    if part == len(PARTS) + 1:
        return [name for name in CASES if name in TWO or name in MORE_WITH_TWO]
    return [name for name in CASES if name not in TWO and {name, home(name)} & set(PARTS[part - 1])]


def subject(part):
    return ", ".join(PARTS[part - 1]) if part <= len(PARTS) else "two GPUs"


def all_parts():
    return range(1, len(PARTS) + 2)


def read_results(path):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def write_results(path, results):
    with open(path, "w") as f:
        json.dump(dict(sorted(results.items())), f, indent=1)
        f.write("\n")


def listing(results):
    """A line for each part and each of its cases: what it took when it was last run, at which memprof."""
    lines = []
    for part in all_parts():
        known = [results[name]["seconds"] for name in cases(part) if name in results]
        took = f"{sum(known):.0f} s of cases" if known else "not run yet"
        lines.append(f"PART={part}  {subject(part)}: {len(cases(part))} cases, {len(known)} of them run, {took}")
        for name in cases(part):
            found = results.get(name)
            state = f"{'ok' if found['passed'] else 'FAILED':<7}{found['seconds']:>6.1f} s  memprof {found['memprof']}, {found['device']}" if found else "not run yet"
            lines.append(f"    {name:<32} {state}")
    return lines
