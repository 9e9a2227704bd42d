"""Jobs of several processes: ranks, workers, scripts, and the ways in which they end."""

import json
import os

from checks.suite import PYTHON, Failed, alone, case

TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def expect(right, what, **found):
    if not right:
        raise Failed(what + "".join(f"\n  {name}: {value}" for name, value in found.items()))


def names(report):
    return sorted(process["process"] for process in report["processes"])


def torchrun(suite, name, text, *flags):
    return [*TORCHRUN, *flags, *suite.script(name, text)[1:]]


@alone
def ranks_side_by_side(suite):
    """Two ranks of a DDP job, of which the second holds more: names, comparison, gates."""
    if suite.gpus() < 2:
        suite.lines.append("  one GPU here: both ranks are on it, and talk over gloo instead of NCCL")
    command = torchrun(
        suite,
        "ranks",
        """
import os, time, torch
import torch.distributed as dist
rank, several = int(os.environ["RANK"]), torch.cuda.device_count() > 1
torch.cuda.set_device(rank if several else 0)
dist.init_process_group("nccl" if several else "gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
optimizer = torch.optim.Adam(net.parameters())
keep = torch.zeros(rank * 2**28, dtype=torch.uint8, device="cuda")
for i in range(5):
    loss = net(torch.randn(256, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
time.sleep(0.5)  # used memory is read every 100 ms
dist.destroy_process_group()
print("done", rank)
""",
    )
    directory, done = suite.record("ranks", command)
    expect(done.stdout.count("done") == 2, "both ranks should have come to their end", stdout=done.stdout, stderr=done.stderr[-2000:])
    suite.verified(directory)
    report = suite.report(directory)
    expect(names(report) == ["rank0", "rank1"], "there should be two processes, rank0 and rank1", found=names(report))
    ranks = report["ranks"]
    reserved = ranks["imbalance_reserved"]
    expect(reserved and reserved["process"] == "rank1" and reserved["ranks"] == 2 and reserved["ratio"] > 1.05, "rank1 should stand out by what it reserved", found=reserved)
    requested = ranks["imbalance_requested"]
    expect(requested and requested["most"] >= 2**28, "rank1 should have requested at least 256 MiB", found=requested)
    first = ranks["first_out"]
    expect(first and first["process"] == "rank1" and first["left"] > 0, "rank1 should be the one that would run out first", found=ranks)
    for row in ranks["rows"]:
        expect(row["total"] and row["total"] > 2**33, "each rank's card should be known, with its memory", found=row)
    text = suite.run([suite.memprof, "report", directory]).stdout
    expect("rank0" in text and "rank1" in text, "the text report should set the ranks side by side", found=text[:2500])
    worst = json.loads(suite.run([suite.memprof, "check", "--json", directory, "--gate", "requested.peak < 200MiB"], expect=1).stdout)["gates"][0]
    expect(worst["where"]["process"] == "rank1", "the worst rank should decide and be named", found=worst)
    suite.run([suite.memprof, "check", directory, "--rank", "0", "--gate", "requested.peak < 200MiB"])
    each = json.loads(suite.run([suite.memprof, "check", "--json", "--rank", "all", directory, "--gate", "requested.peak < 200MiB"], expect=1).stdout)["gates"]
    expect([(gate["where"]["process"], gate["ok"]) for gate in each if not gate["always"]] == [("rank0", True), ("rank1", False)], "--rank all should judge each rank", found=each)
    suite.run([suite.memprof, "check", directory, "--gate", "imbalance.reserved < 1000%"])
    fits = json.loads(suite.run([suite.memprof, "fit", "--json", directory]).stdout)
    expect(fits["compared"]["process"] == "rank1" and fits["rows"], "fit should compare the rank that needs most", found=fits)
    suite.figure("two ranks, one with 256 MiB more: imbalance of reserved", f"{reserved['ratio']:.2f}")


@case
def ranks_started_again(suite):
    """torchrun's agent ends the other rank by SIGTERM when one fails, and starts both again."""
    text = """
import os, sys, time, torch
rank = int(os.environ["RANK"])
x = [torch.ones(1 << 20, device="cuda") for _ in range(50)]
torch.cuda.synchronize()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 1:
        time.sleep(3)  # the other has allocated by then
        sys.exit(7)
    time.sleep(120)
print("done", rank)
"""
    directory, done = suite.record("again", torchrun(suite, "again", text, "--max-restarts", "1"))
    expect(done.stdout.count("done") == 2, "both ranks should have come to their end after the restart", stdout=done.stdout, stderr=done.stderr[-2000:])
    verified = suite.verified(directory)["processes"]
    expect(len(verified) == 4 and all(process["allocs"] >= 50 for process in verified), "four processes with 50 allocations each should verify", found=verified)
    found = names(suite.report(directory))
    plain = [name for name in found if "-" not in name]
    expect(plain == ["rank0", "rank1"] and len(found) == 4, "each rank should be there twice, the later with its pid", found=found)

    directory, done = suite.record("failed", torchrun(suite, "again", text), expect=1)
    verified = suite.verified(directory)["processes"]
    expect(len(verified) == 2 and all(process["allocs"] >= 50 for process in verified), "the rank that failed and the one that was ended should verify", found=verified)


@case
def spawned_workers(suite):
    """multiprocessing with spawn: each process that uses the GPU has its own parts."""
    command = suite.script(
        "spawned",
        """
import torch
import torch.multiprocessing as mp

def work(number):
    x = [torch.ones((number + 1) << 18, device="cuda") for _ in range(20)]
    assert float(x[-1].sum()) == (number + 1) << 18

if __name__ == "__main__":
    first = torch.ones(1000, device="cuda")
    mp.spawn(work, nprocs=3)
    print("done", float(first.sum()))
""",
    )
    directory, done = suite.record("spawned", command)
    expect("done 1000" in done.stdout, "the job should have come to its end", stdout=done.stdout, stderr=done.stderr[-2000:])
    verified = suite.verified(directory)["processes"]
    allocs = sorted(process["allocs"] for process in verified)
    expect(len(verified) == 4 and allocs[0] >= 1 and allocs[1] >= 20, "the parent and three workers should verify", found=verified)
    found = names(suite.report(directory))
    expect(all(name.startswith("pid") for name in found), "processes without a rank should be named by their pid", found=found)


@case
def script_of_two_jobs(suite):
    """A shell script that starts two jobs, one in the background, in environments of their own."""
    job = suite.script("either", "import sys, torch\nx = torch.ones(int(sys.argv[1]) << 20, device='cuda')\nprint('done', int(x[-1]))\nsys.exit(int(sys.argv[2]))")
    script = os.path.join(suite.work, "two.sh")
    quoted = " ".join(job)
    with open(script, "w") as f:
        f.write(f"#!/bin/sh\n{quoted} 10 0 &\n{quoted} 20 6\ncode=$?\nwait\nexit $code\n")
    directory, done = suite.record("two", ["sh", script], expect=6)
    expect(done.stdout.count("done 1") == 2, "both jobs should have come to their end", stdout=done.stdout, stderr=done.stderr[-2000:])
    verified = suite.verified(directory)["processes"]
    expect(len(verified) == 2, "both jobs should be in the recording", found=verified)
    check = [suite.memprof, "check", directory, "--rank", "all", "--gate", "requested.peak < 1GiB"]
    suite.run(check, expect=1)  # the script exited with 6
    suite.run([*check, "--without", "job.exit"])


@case
def exits_at_once(suite):
    """os._exit runs no destructor: the recording is complete all the same."""
    directory, _ = suite.record(
        "at_once", suite.script("at_once", "import os, torch\nx = [torch.ones(1000, device='cuda') for _ in range(500)]\nos._exit(3)"), expect=3
    )
    verified = suite.verified(directory)["processes"]
    expect(len(verified) == 1 and verified[0]["allocs"] >= 500, "500 allocations should verify", found=verified)


@case
def isolated_python(suite):
    """python -I loads no shim: libraries are observed where they call CUDA, and record says so."""
    script = suite.script("isolated", "import torch\nx = torch.ones(1 << 26, device='cuda')\nprint('done', int(x[-1]))")
    directory, done = suite.record("isolated", [PYTHON, "-I", *script[1:]])
    expect("done 1" in done.stdout, "the job should have come to its end", stdout=done.stdout, stderr=done.stderr[-2000:])
    expect("-I ignores PYTHONPATH" in done.stderr, "record should say that tensors are not recorded", stderr=done.stderr[-2000:])
    report = suite.report(directory)
    devices = report["processes"][0]["devices"]
    external = sum(device["other_libraries"]["peak"] for device in devices)
    expect(external >= 2**28 and sum(device["allocs"] for device in devices) == 0, "torch's own cudaMalloc should be seen as another library's", found=devices)
    suite.run([suite.memprof, "check", directory, "--gate", "reserved.peak < 1TiB"], expect=2)
    with open(os.path.join(directory, "run.json")) as f:
        problems = json.load(f).get("problems") or []
    expect(any("-I ignores PYTHONPATH" in problem for problem in problems), "run.json should keep what was not recorded", found=problems)


@case
def no_compiler(suite):
    """Without a compiler, or with one that fails, memprof's allocator serves the job by torch's plug-in interface."""
    script = suite.script("bare", "import torch\nx = torch.ones(1 << 20, device='cuda')\nprint('done', int(x[-1]))")
    for name, compiler in (("fails", "/bin/false"), ("missing", "/nowhere/c++")):
        directory = os.path.join(suite.work, "bare-" + name)
        environment = ["env", "CXX=" + compiler, "MEMPROF_CACHE=" + os.path.join(suite.work, "cache-" + name)]
        done = suite.run([*environment, suite.memprof, "record", "--force", "-o", directory, "--", *script])
        expect("done 1" in done.stdout, "the job should have come to its end", stdout=done.stdout, stderr=done.stderr[-2000:])
        expect("recorded by torch's plug-in allocator, without memory history" in done.stderr, "record should say what it could not record", stderr=done.stderr[-2000:])


@case
def doctor_on_gpu(suite):
    """doctor finds no problem here, and finds the shim that earlier jobs compiled."""
    script = suite.script("doctored", "import torch\ntorch.ones(1, device='cuda')")
    suite.record("doctored", script)
    found = json.loads(suite.run([suite.memprof, "doctor", "--json", "--", *script]).stdout)
    expect(not [f for f in found if f["status"] == "fail"], "nothing should be amiss", found=found)
    by_name = {f["check"]: f for f in found}
    expect(by_name["torch shim"]["detail"].startswith("built: "), "the shim should be found built", found=by_name["torch shim"])
    expect(by_name["driver"]["status"] == "ok" and by_name["device 0"]["status"] == "ok", "driver and device should be fine", found=found)
    isolated = json.loads(suite.run([suite.memprof, "doctor", "--json", "--", PYTHON, "-I", *script[1:]]).stdout)
    expect([f for f in isolated if f["check"] == "command"][0]["status"] == "warn", "doctor should warn of -I", found=isolated[:2])
