"""Blocks that several streams and threads use: no overlap, no early reuse."""

from checks.suite import Failed, case, number

STRESS = '''
import os, random, sys, threading, time, torch
threads, streams, loops = 8, 4, int(sys.argv[1])
bad = torch.zeros(threads, dtype=torch.int64, device="cuda")
failures = []

def churn(number):
    random.seed(number)
    mine = [torch.cuda.Stream() for _ in range(streams)]
    held, count = [], torch.zeros(1, dtype=torch.int64, device="cuda")
    count.record_stream(mine[0])
    torch.cuda.synchronize()
    try:
        for i in range(loops):
            stream = mine[i % streams]
            tag = number * loops + i & 0x3FFFFFFF
            with torch.cuda.stream(stream):
                block = torch.full((random.choice((64, 300, 5000, 70000, 300000)),), tag, dtype=torch.int32, device="cuda")
            held.append((block, tag, stream))
            if len(held) < 24:
                continue
            block, tag, owner = held.pop(random.randrange(len(held)))
            reader = random.choice(mine)
            with torch.cuda.stream(reader):
                reader.wait_stream(owner)
                wrong = (block != tag).sum()
                if reader != owner:
                    block.record_stream(reader)
                mine[0].wait_stream(reader)
            with torch.cuda.stream(mine[0]):
                wrong.record_stream(mine[0])
                count += wrong
            del block, wrong
        for stream in mine:
            stream.synchronize()
        bad[number] = count[0]
    except BaseException as error:
        failures.append(repr(error))
        raise

start = time.time()
workers = [threading.Thread(target=churn, args=(n,)) for n in range(threads)]
[w.start() for w in workers]
[w.join() for w in workers]
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
print("operations", stats["allocation.all.allocated"] + stats["allocation.all.freed"])
print("seconds", time.time() - start)
print("result", int(bad.sum()), failures)
'''


@case
def stream_stress(suite):
    """8 threads, 4 streams each, a million operations: every block keeps its pattern."""
    command = suite.script("stress", STRESS) + ["24000"]
    directory, done = suite.record("stress", command)
    if "result 0 []" not in done.stdout:
        raise Failed(done.stdout + done.stderr[-2000:])
    suite.verified(directory)
    operations = number(r"^operations (\d+)$", done.stdout)
    suite.figure("stress: operations", f"{operations:.0f} in {number(r'^seconds (.+)$', done.stdout):.0f} s", "1000000")
    if operations < 1e6:
        raise Failed(f"{operations} operations")
