"""Device accounting while many jobs share a card, each recorded by itself."""

import concurrent.futures

from checks.accounting import UNEXPLAINED, accounts, shown
from checks.side_by_side import MIB
from checks.suite import Failed, alone

MODELS = ["alexnet", "squeezenet1_1", "mobilenet_v2", "googlenet", "resnet50", "vit_b_16", "bert", "densenet121"]
CONTEXT_AT_MOST = 2048 * MIB
TERMS = ["requested", "internal", "pending", "stranded", "reserve", "reusable", "external", "other_libraries", "context", "modules", "loads", "graphs", "pools", "managed", "host_pinned"]


def possible(name, account, card):
    """Checks the accounting of one of several processes at both instants. Returns the shares that are unexplained."""
    shares = []
    for instant in ("peak", "end"):
        found = account[instant]
        if account["missing"] is not None or found["used"] is None:
            raise Failed(f"no reading of used memory at the {instant} ({account['missing']}); {shown(name, account)}")
        negative = [term for term in TERMS if found[term] is not None and found[term] < 0]
        if negative or not 0 < found["used"] <= card:
            raise Failed(f"impossible at the {instant}: {', '.join(negative) or 'used'}; {shown(name, account)}")
        if found["explained"] + found["rest"] != found["used"]:
            raise Failed(f"the accounting does not add up at the {instant}; {shown(name, account)}")
        if account["scope"] == "process":
            if found["unexplained"] is None or found["driver_overhead"] is None:
                raise Failed(f"the driver tells what this process uses, and its unexplained memory is unknown; {shown(name, account)}")
            if not 0 < found["driver_overhead"] < CONTEXT_AT_MOST:
                raise Failed(f"driver overhead of {found['driver_overhead'] / MIB:.0f} MiB; {shown(name, account)}")
            if abs(found["unexplained_share"]) > UNEXPLAINED:
                raise Failed(f"{found['unexplained_share']:.1%} of used is unexplained at the {instant}; {shown(name, account)}")
            shares.append(found["unexplained_share"])
        elif found["unexplained"] is not None or not found["unexplained_unknown"]:
            raise Failed(f"the whole card was read, and unexplained memory is not said to be unknown; {shown(name, account)}")
    return shares


@alone
def eight_jobs_on_a_card(suite):
    """Eight jobs at once: nothing impossible; at most 2 % unexplained of each, or said to be unknown."""
    card = suite.torch("torch.cuda.mem_get_info()[1]")
    models = MODELS if suite.free() > 100 << 30 else MODELS[:3] * 2 + MODELS[:2]
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        jobs = [pool.submit(suite.record, f"job{i}", suite.job("zoo", "--model", model, "--iterations", "15")) for i, model in enumerate(models)]
    scopes, shares, contexts = set(), [], []
    for model, job in zip(models, jobs):
        directory, _ = job.result()
        suite.verified(directory)
        for process, account in accounts(suite, directory).items():
            shares += possible(f"{model}, {process}", account, card)
            scopes.add(account["scope"])
            if account["scope"] == "process":
                contexts.append(account["peak"]["context"])
    text = f"scope {', '.join(sorted(scopes))}"
    if shares:
        text += f"; unexplained {min(shares):.2%} to {max(shares):.2%}; contexts {min(contexts) / MIB:.0f} to {max(contexts) / MIB:.0f} MiB"
    suite.figure("eight jobs at once, each recorded", text, f"{UNEXPLAINED:.0%} unexplained at most")
    if max(contexts, default=0) - min(contexts, default=0) > 16 * MIB:
        raise Failed(f"contexts of {', '.join(f'{size / MIB:.0f}' for size in contexts)} MiB: one took memory of another job for its own")
