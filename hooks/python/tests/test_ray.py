"""Actors of Ray under MEMPROF_WATCH, in a stand-in with Ray's process model.

A raylet starts workers before it knows what for; their environment, with the job's runtime_env, is fixed then. A worker becomes an
actor when it gets a class, renames itself after it, and serves its methods until the raylet kills it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import test_recording  # noqa: E402
from hooked import HOOKS, LIBRARY, SIMULATION  # noqa: E402

WORKER = """
import ctypes, json, os, sys
import memprof._start  # as the .pth file of the wheel does

class Actor:
    def __init__(self): self.blocks = 0
    def step(self, blocks):
        import torch
        if not torch.cuda.is_initialized(): torch.cuda.init()
        ctypes.CDLL(%r)
        for _ in range(blocks): ctypes.CDLL(os.environ["MEMPROF_SHIM"]).take()
        self.blocks += blocks
        return self.blocks
class Trainer(Actor): pass
class Rollout(Actor): pass

def rename(title):  # as setproctitle: what /proc/PID/cmdline has
    with open("/proc/self/stat") as stat:
        begin, end = map(int, stat.read().rpartition(")")[2].split()[45:47])  # arg_start, arg_end: proc(5)
    ctypes.memmove(begin, title.encode().ljust(end - begin, b"\\0"), end - begin)

actor = None
rename("ray::IDLE")
for line in sys.stdin:
    task = json.loads(line)
    if "create" in task:
        actor = {"Trainer": Trainer, "Rollout": Rollout}[task["create"]]()
        rename("ray::%s.__init__" % task["create"])
    elif "step" in task:
        rename("ray::%s.step" % type(actor).__name__)
    print(json.dumps(actor.step(task["step"]) if "step" in task else None), flush=True)
"""


class Raylet:
    """Starts idle workers, and gives them tasks."""

    def __init__(self, environment, workers):
        command = [sys.executable, "-c", WORKER.replace("%r", repr(LIBRARY), 1)]
        self.workers = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(workers)]

    def ask(self, worker, **task):
        print(json.dumps(task), file=self.workers[worker].stdin, flush=True)
        return json.loads(self.workers[worker].stdout.readline())

    def kill(self, worker):
        process = self.workers[worker]
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION) and shutil.which("cc"), "the hook is not built: make -C hooks dist")
@unittest.skipUnless(os.path.exists(test_recording.TOOL), "the command line tool is not built")
class RayTest(unittest.TestCase):
    setUpClass = classmethod(test_recording.RecordingTest.setUpClass.__func__)

    def test_actors(self):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            path = os.pathsep.join([os.path.join(HOOKS, "python"), self.modules])
            environment = dict(os.environ, PYTHONPATH=path, LD_LIBRARY_PATH=self.sim, MEMPROF_SHIM=self.shim, MEMPROF_ATTRIBUTION="none", MEMPROF=test_recording.TOOL)
            raylet = Raylet(dict(environment, MEMPROF_WATCH=run), 3)
            raylet.ask(0, create="Trainer")
            raylet.ask(1, create="Rollout")
            self.assertEqual([raylet.ask(0, step=3), raylet.ask(1, step=5), raylet.ask(0, step=4)], [3, 5, 7])
            # The third worker stays idle: it never uses CUDA, and is in no recording.
            pids = [worker.pid for worker in raylet.workers]
            for worker in range(3):
                raylet.kill(worker)
            end = time.monotonic() + 60  # for the collector, which completes the recording once no process writes
            while os.path.exists(os.path.join(run, "spool")) and time.monotonic() < end:
                time.sleep(0.05)
            report = json.loads(subprocess.run([test_recording.TOOL, "report", "--json", run], check=True, stdout=subprocess.PIPE).stdout)
            found = {p["process"]: [(d["allocs"], d["peak"]["requested"]) for d in p["devices"]] for p in report["processes"]}
            self.assertEqual(found, {"pid%d-Trainer" % pids[0]: [(7, 7 << 21)], "pid%d-Rollout" % pids[1]: [(5, 5 << 21)]})
            self.assertEqual({row["process"]: row["max_requested"] for row in report["ranks"]["rows"]}, {name: of[0][1] for name, of in found.items()})


if __name__ == "__main__":
    unittest.main()
