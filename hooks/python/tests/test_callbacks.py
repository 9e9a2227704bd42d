"""The callbacks that log memory, and recordings in notebooks, with made-up libraries and a made-up tool."""

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = {
    "transformers.py": """
        class TrainerCallback:
            def on_train_begin(self, *a, **k): pass
            def on_log(self, *a, **k): pass
        class Board(TrainerCallback):
            def __init__(self): self.seen, self.begun = [], 0
            def on_train_begin(self, *a, **k): self.begun += 1
            def on_log(self, args, state, control, logs=None, **k): self.seen.append(dict(logs))
        class CallbackHandler:
            def __init__(self, callbacks): self.callbacks = callbacks
            def call_event(self, event, **kwargs):
                for callback in self.callbacks:
                    getattr(callback, event)(None, None, None, **kwargs)
        def train(callbacks):
            board = Board()
            handler = CallbackHandler([board] + callbacks + [Board()])
            handler.call_event("on_train_begin", model=None)
            handler.call_event("on_log", logs={"loss": 1.0})
            handler.call_event("on_log", logs={"loss": 0.5})
            assert [c.begun for c in handler.callbacks if isinstance(c, Board)] == [1, 1]
            return board.seen
    """,
    "lightning/__init__.py": "",
    "lightning/pytorch/__init__.py": "",
    "lightning/pytorch/callbacks.py": "class Callback: pass\n",
}

STATS = """
import memprof
from memprof import _hook
class Lib:
    def memprof_active(self): return 1
    def memprof_get_stats(self, device, stats):
        of = stats._obj
        of.requested_bytes.current, of.allocated_bytes.current = 300 + device, 350
        of.reserved_bytes.current, of.reserved_bytes.peak, of.ooms = 400, 500, 2
_hook._library, _hook._looked = Lib(), True
"""


class CallbacksTest(unittest.TestCase):
    def run_script(self, script):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in LIBRARIES.items():
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as f:
                    f.write(textwrap.dedent(text))
            env = dict(os.environ, PYTHONPATH=os.pathsep.join([folder, os.path.dirname(HERE)]), PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.strip()

    def test_scalars(self):
        self.assertEqual(
            self.run_script(STATS + "print(memprof.scalars())"),
            "{'memprof/requested': 300, 'memprof/provided': 350, 'memprof/reserved': 400, 'memprof/reserved_peak': 500, 'memprof/failed_requests': 2, 'memprof/waste': 0.25}",
        )
        self.assertEqual(self.run_script(STATS + "print(memprof.scalars(7)['memprof/requested'])"), "307")
        self.assertEqual(self.run_script("import memprof; print(memprof.scalars())"), "{}")

    def test_native(self):
        torch = """
import sys, types
cuda = types.SimpleNamespace(is_initialized=lambda: True, is_available=lambda: True, current_device=lambda: 1,
    memory_stats=lambda device: {"requested_bytes.all.current": 10 + device, "reserved_bytes.all.current": 44, "num_ooms": 1})
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
def nothing(device, stats): pass
Lib.memprof_get_stats = lambda self, device, stats: None
print(memprof.scalars())
"""
        self.assertEqual(
            self.run_script(STATS + torch),
            "{'memprof/requested': 11, 'memprof/provided': 0, 'memprof/reserved': 44, 'memprof/reserved_peak': 0, 'memprof/failed_requests': 1, 'memprof/waste': 0.75}",
        )

    def test_transformers(self):
        script = "import transformers\nfrom memprof.callbacks import TransformersCallback\n"
        show = "seen = transformers.train([TransformersCallback()]); print(len(seen), [(s['loss'], s.get('memprof/reserved')) for s in seen])"
        self.assertEqual(self.run_script(STATS + script + show), "2 [(1.0, 400), (0.5, 400)]")
        self.assertEqual(self.run_script(script + show), "2 [(1.0, None), (0.5, None)]")

    def test_lightning(self):
        script = """
from memprof.callbacks import LightningCallback
import types
logged = []
trainer = types.SimpleNamespace(log_every_n_steps=2, global_step=0, is_global_zero=True,
    loggers=[types.SimpleNamespace(log_metrics=lambda metrics, step: logged.append((step, metrics["memprof/provided"])))])
callback = LightningCallback()
for batch in range(8):
    trainer.global_step = (batch + 1) // 2 + 1
    callback.on_train_batch_end(trainer, None, None, None, batch)
print(logged)
"""
        self.assertEqual(self.run_script(STATS + script), "[(2, 350), (4, 350)]")
        self.assertEqual(self.run_script("import memprof\n" + script), "[]")

    def test_notebook(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = os.path.join(folder, "memprof")
            with open(tool, "w") as f:
                f.write("#!/bin/sh\ntest \"$3\" = run || { echo \"memprof: <$3>: no trace\" >&2; exit 2; }\n"
                        "echo '{\"processes\": [{\"process\": \"rank0\", \"job\": {\"command\": [\"a\", \"<b>\"]}, \"devices\": [{\"device\": 1, \"gpu\": \"H\", "
                        "\"peak\": {\"reserved\": 2147483648, \"requested\": 1024}, \"summary\": {\"categories\": [{\"category\": \"weights\", \"bytes\": 3145728, \"module\": null, \"line\": \"x < y\"}], \"findings\": [{\"text\": \"checkpoint <h>\", \"saves_least_card\": 5242880}]}}]}]}'\n")
            os.chmod(tool, os.stat(tool).st_mode | stat.S_IXUSR)
            script = "import os, memprof\nos.environ['MEMPROF'] = %r\nprint(memprof.Recording(%r)._repr_html_())"
            text = self.run_script(script % (tool, "run"))
            for want in ("rank0, GPU 1 H", "2 GiB", "1 KiB", "3 MiB", "x &lt; y", "checkpoint &lt;h&gt;", "5 MiB", "a &lt;b&gt;", "<table>"):
                self.assertIn(want, text)
            self.assertNotIn("<b>\"", text)
            self.assertIn("&lt;lost&gt;", self.run_script(script % (tool, "lost")))
            self.assertIn("no memprof on the PATH", self.run_script("import os, memprof\nos.environ['PATH'] = ''\nos.environ.pop('MEMPROF', None)\nprint(memprof.Recording('run')._repr_html_())"))


if __name__ == "__main__":
    unittest.main()
