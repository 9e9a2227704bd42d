"""Recordings of torch's own history, which need no compiler: stored snapshots, whose entries a made-up torch gives piece by piece."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import test_recording  # noqa: E402
from hooked import HOOKS, LIBRARY, SIMULATION  # noqa: E402

TOOL = test_recording.TOOL
SAMPLES = os.path.join(os.path.dirname(HOOKS), "samples", "snapshots")

# `allocator` has a stored snapshot's entries up to `at`, and makes segments of what they lead to.
ALLOCATOR = """
import gzip, pickle
_C._GLIBCXX_USE_CXX11_ABI = True
class _Allocator:
    def __init__(self):
        with gzip.open(os.environ["SNAPSHOT"]) as file: self.whole = pickle.load(file)
        self.entries = self.whole["device_traces"][0]
        self.at = self.cleared = 0
        self.on, self.most = None, 0
        self.settings = []
    def record(self, enabled, context=None, stacks=None, max_entries=None):
        if enabled is None: self.cleared = self.at
        else:
            self.settings.append((context, max_entries))
            self.most = max_entries
        self.on = enabled
    def advance(self, to):
        if self.on is None: self.cleared = to
        self.at = to
    def lose(self, count):
        self.advance(self.at + count)
        self.cleared = self.at
    def state(self):
        if self.at == len(self.entries): return self.whole["segments"]
        pages, blocks = {}, {}
        for e in self.entries[:self.at]:
            if e["action"] == "alloc": blocks[e["addr"]] = [e["size"], "active_allocated"]
            elif e["action"] == "free_requested": blocks[e["addr"]][1] = "active_awaiting_free"
            elif e["action"] == "free_completed": del blocks[e["addr"]]
            elif e["action"] in ("segment_alloc", "segment_map"): pages[e["addr"]] = e
            elif e["action"] in ("segment_free", "segment_unmap"): del pages[e["addr"]]
        segments = []
        for start, e in sorted(pages.items()):
            inside = sorted((a, *b) for a, b in blocks.items() if start <= a < start + e["size"])
            pool = next((s["segment_pool_id"] for s in self.whole["segments"] if s["address"] == start and s["total_size"] == e["size"]), (0, 0))
            segments.append(dict(device=0, segment_pool_id=pool, address=start, total_size=e["size"], stream=e["stream"], requested_size=0,
                allocated_size=sum(-(-s // 512) * 512 for _, s, t in inside if t == "active_allocated"),
                active_size=sum(-(-s // 512) * 512 for _, s, _ in inside),
                segment_type="small" if e["size"] == 2 << 20 else "large", is_expandable=e["action"] == "segment_map",
                blocks=[dict(address=a, size=-(-s // 512) * 512, requested_size=s, state=t) for a, s, t in inside]))
        return segments
    def snapshot(self):
        return {"segments": self.state(), "device_traces": [self.entries[max(self.cleared, self.at - self.most):self.at]]}
    def stats(self, device):
        if self.at == 0: return {}  # while CUDA is being initialised torch has no statistics
        seen = [e["action"] for e in self.entries[:self.at]]
        blocks = dict(allocated=seen.count("alloc"), freed=seen.count("free_requested"))
        return {"allocation": {"all": blocks}, "allocated_bytes": {"all": {"peak": 0}}}
allocator = _Allocator()
cuda.memory = types.SimpleNamespace(_record_memory_history=allocator.record, _snapshot=allocator.snapshot, memory_stats_as_nested_dict=allocator.stats)
"""

SAID = "memprof: no C++ compiler found; install one, or build the shim elsewhere with `memprof doctor hooks build` and pass it with --shim FILE; until then torch's own history is recorded, which adds about 1 us"


@unittest.skipUnless(all(os.path.exists(file) for file in (LIBRARY, SIMULATION, TOOL)), "not built: make build")
class HistoryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)  # a collector that a job has left may still write there
        self.run_directory = os.path.join(self.folder, "run")
        for name in ("sim", "torch", "empty"):
            os.mkdir(os.path.join(self.folder, name))
        os.symlink(SIMULATION, os.path.join(self.folder, "sim", "libcuda.so.1"))
        with open(os.path.join(self.folder, "torch", "__init__.py"), "w") as f:
            f.write(test_recording.TORCH.replace("9.9", "2.11.0") + ALLOCATOR)

    def script(self, text, snapshot="native.pickle.gz", said=SAID, **more):
        text = "import memprof, os, torch\nallocator = torch.allocator\nend = len(allocator.entries)\ntorch.cuda.init()\n" + textwrap.dedent(text)
        env = dict(self.environment(snapshot), **more)
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stderr.startswith(said) and done.stderr.count("\n") == 1, done.stderr)
        return done.stdout.split()

    def environment(self, snapshot):
        path = os.pathsep.join([os.path.join(HOOKS, "python"), self.folder])
        folders = {"LD_LIBRARY_PATH": "sim", "PATH": "empty", "MEMPROF_SHIM_CACHE": "cache", "RUN": "run", "HOME": ""}
        env = {name: os.path.join(self.folder, folder) for name, folder in folders.items()}
        return dict(env, PYTHONPATH=path, MEMPROF=TOOL, SNAPSHOT=os.path.join(SAMPLES, snapshot))

    def report(self, directory):
        done = subprocess.run([TOOL, "report", "--json", directory], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        (device,) = json.loads(done.stdout)["processes"][0]["devices"]
        return device

    def sides(self, name):
        """The recording and the import of a stored snapshot, after the recording is verified by the model of torch's allocator."""
        imported = os.path.join(self.folder, "imported " + name)
        verified = subprocess.run([TOOL, "verify", self.run_directory], check=True, stdout=subprocess.PIPE, text=True)
        self.assertIn("by its model: the same addresses and segments", verified.stdout)
        self.assertIn(" equal, 0 not", verified.stdout)
        subprocess.run([TOOL, "import", os.path.join(SAMPLES, name), "-o", imported], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.report(self.run_directory), self.report(imported)

    def problems(self):
        done = subprocess.run([TOOL, "report", self.run_directory], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return [line.partition("torch's history: ")[2] for line in done.stdout.splitlines() if "torch's history: " in line]

    def test_a_snapshot_gives_what_its_import_gives(self):
        for name in ("native.pickle.gz", "expandable.pickle.gz", "pools-native.pickle.gz", "pools-expandable.pickle.gz"):
            with self.subTest(name):
                self.script(
                    """
                    memprof.watch(os.environ["RUN"], stacks=True)
                    for part in (1, 2, 3):
                        allocator.advance(end * part // 4)
                        with memprof.phase("part"): pass
                    allocator.advance(end)
                    memprof.stop()
                    assert allocator.on is None and set(allocator.settings) == {("alloc", 200000)}, allocator.settings
                    """,
                    name,
                )
                ours, theirs = self.sides(name)
                for key in ("allocs", "frees", "growth_count", "max_requested", "max_provided", "max_reserved"):
                    self.assertEqual(ours[key], theirs[key], key)
                for key in ("requested", "provided", "reserved", "live", "pending"):
                    self.assertEqual((ours["final"][key], ours["peak"][key]), (theirs["final"][key], theirs["peak"][key]), key)
                self.assertEqual(self.groups(ours), self.groups(theirs))
                self.assertEqual(self.problems(), [])
                shutil.rmtree(self.run_directory)

    def groups(self, device):
        return sorted((g["requested"], g["blocks"], *g.get("frames", ())) for g in device["held_at_peak"]["stacks"]["groups"])

    def test_from_the_middle(self):
        self.script(
            """
            allocator.advance(end // 2)
            memprof.watch(os.environ["RUN"])
            allocator.advance(end)
            memprof.stop()
            """
        )
        ours, theirs = self.sides("native.pickle.gz")
        gone = self.counts(226)["free_completed"]  # one is pending
        self.assertEqual((ours["allocs"], ours["frees"]), (160 - gone, 141 - gone))
        self.assertEqual(ours["final"]["requested"], theirs["final"]["requested"])

    def counts(self, to):
        import gzip
        import pickle

        with gzip.open(os.path.join(SAMPLES, "native.pickle.gz")) as file:
            seen = [e["action"] for e in pickle.load(file)["device_traces"][0][:to]]
        return {action: seen.count(action) for action in ("alloc", "free_completed")}

    def test_what_is_lost_is_said_and_made_up_for(self):
        self.script(
            """
            memprof.watch(os.environ["RUN"])
            allocator.advance(100)
            memprof.iteration()
            allocator.lose(100)
            allocator.advance(300)
            memprof.iteration()
            allocator.advance(end)
            memprof.stop()
            """
        )
        lost = self.counts(200)["alloc"] - self.counts(100)["alloc"]
        skipped = 2  # later ones, of which only the lost frees would say that the address was free
        (said,) = self.problems()
        self.assertTrue(said.startswith("%d allocations are not in it, " % (lost + skipped)), said)
        device = self.report(self.run_directory)
        self.assertEqual(device["allocs"], self.counts(None)["alloc"] - lost - skipped)
        self.assertEqual([device["final"][key] for key in ("requested", "provided", "reserved", "live")], [125859844, 125860352, 146800640, 19])

    def test_times_do_not_fall(self):
        self.script(
            """
            import time
            memprof.watch(os.environ["RUN"], stacks=True)
            begun = time.time_ns() // 1000
            for i, entry in enumerate(allocator.entries):
                entry["time_us"] = begun + (i, 0, 2**60)[i // 100 % 3]
            time.sleep(0.1)
            allocator.advance(end)
            memprof.stop()
            """
        )
        self.sides("native.pickle.gz")
        done = subprocess.run([TOOL, "export", "csv", self.run_directory], check=True, stdout=subprocess.PIPE, text=True)
        times = [int(line.split(",")[2]) for line in done.stdout.splitlines()[1:]]
        fallen = [(now, before) for before, now in zip(times, times[1:]) if now < before - 1e6]
        self.assertEqual(fallen, [])

    def test_events_of_others_between_drains(self):
        self.script(
            """
            import time
            from memprof import kv
            memprof.watch(os.environ["RUN"])
            begun = time.time_ns() // 1000
            for i, entry in enumerate(allocator.entries): entry["time_us"] = begun + i
            time.sleep(1.3)
            kv.Cache(slots=16, token_bytes=64)  # a mark that drains nothing
            allocator.advance(end)
            memprof.stop()
            """
        )
        self.sides("native.pickle.gz")
        done = subprocess.run([TOOL, "export", "csv", self.run_directory], check=True, stdout=subprocess.PIPE, text=True)
        times = [int(line.split(",")[2]) for line in done.stdout.splitlines()[1:]]
        falls = [max(times[: i + 1]) - time for i, time in enumerate(times)]
        self.assertTrue(4e8 < max(falls) <= 5e8, max(falls))

    def test_a_mark_while_entries_are_written(self):
        self.script(
            """
            memprof.watch(os.environ["RUN"])
            snapshot = torch.cuda.memory._snapshot
            def and_marks():  # as the end of an object does that the collector finds
                torch.cuda.memory._snapshot = snapshot
                memprof.iteration()
                return snapshot()
            torch.cuda.memory._snapshot = and_marks
            allocator.advance(end)
            memprof.stop()
            """
        )
        ours, theirs = self.sides("native.pickle.gz")
        self.assertEqual(ours["iterations"][0]["end_requested"], theirs["final"]["requested"])

    def test_drains_before_torch_drops_entries(self):
        text = """
            import time
            from memprof import _history
            _history.MOST_ENTRIES, _history.LOOKS = %d, 0.001
            memprof.watch(os.environ["RUN"])
            for at in range(0, end, 30):
                allocator.advance(at)
                %s
            allocator.advance(end)
            memprof.stop()
            """
        wait = "while len(allocator.snapshot()['device_traces'][0]) > 50: time.sleep(0.001)"
        self.script(text % (100, wait))
        self.assertEqual(self.problems(), [])
        self.assertEqual(self.report(self.run_directory)["allocs"], 160)
        shutil.rmtree(self.run_directory)
        self.script(text.replace("0.001\n", "100\n") % (100, "pass"))
        self.assertEqual(len(self.problems()), 1)
        self.assertEqual(self.report(self.run_directory)["final"]["requested"], 125859844)

    def test_by_the_environment_and_until_the_end(self):
        text = "import memprof._start\ntorch.cuda.init()\nallocator.advance(end)"
        self.script(text, MEMPROF_WATCH=self.run_directory)
        subprocess.run([TOOL, "record", "--finish", self.run_directory, "--now"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(self.report(self.run_directory)["allocs"], 160)

    def test_a_shim_that_does_not_load(self):
        shim = os.path.join(self.folder, "shim.so")
        with open(shim, "w") as f:
            f.write("no library")
        self.script("memprof.watch(os.environ['RUN'])\nallocator.advance(end)\nmemprof.stop()", said="memprof: %s: " % shim, MEMPROF_SHIM=shim)
        self.assertEqual(self.report(self.run_directory)["allocs"], 160)

    def test_under_record(self):
        job = "import torch\ntorch.cuda.init()\ntorch.allocator.advance(452)"
        command = [TOOL, "record", "--allocator", "native", "--stacks", "python", "-o", self.run_directory, "--", sys.executable, "-c", job]
        env = dict(self.environment("native.pickle.gz"), PYTHONPATH=self.folder)
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("torch's own history is recorded", done.stderr)
        ours, theirs = self.sides("native.pickle.gz")
        self.assertEqual((ours["allocs"], self.groups(ours)), (160, self.groups(theirs)))

    def test_a_job_that_uses_the_history(self):
        out = self.script(
            """
            torch._C._cuda_isHistoryEnabled = lambda: True
            try: memprof.watch(os.environ["RUN"])
            except memprof.WatchError as error: print(error)
            """
        )
        self.assertEqual(" ".join(out), "torch: the job itself uses torch's history")


if __name__ == "__main__":
    unittest.main()
