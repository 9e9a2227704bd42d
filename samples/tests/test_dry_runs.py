"""Tests of the runner of all dry runs, with a memprof that only logs convolutions; no GPU and no torch is needed."""

import contextlib
import io
import os
import sys
import tarfile
import tempfile
import textwrap
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import dry_runs

# Takes the place of `memprof record`: all models have a convolution in common, and alexnet one of its own.
# The plan is the table of workspaces that it was given, and the cards that it saw.
MEMPROF = """
    #!/bin/sh
    while [ "$1" != -o ]; do shift; done
    plan=$2 model=${2##*/}
    mkdir -p "$plan/summary"
    echo '[1, "forward common"]' >>"$MEMPROF_DRY_RUN_CONVOLUTIONS"
    case $model in
      alexnet) echo '[2, "forward 64x3"]' >>"$MEMPROF_DRY_RUN_CONVOLUTIONS" ;;
      densenet121) echo "memory is short"; exit 3 ;;
      resnet101) sleep 60 ;;
    esac
    { cat "${MEMPROF_DRY_RUN_TABLE:-/dev/null}"; echo "cards=$CUDA_VISIBLE_DEVICES"; } >"$plan/table"
    echo "iteration 0 loss 0x1"
    echo "memory 0 requested 1234567 allocated 2 reserved 3"
"""


class DryRunsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.memprof, self.output = os.path.join(self.folder, "memprof"), os.path.join(self.folder, "runs.tar.gz")
        with open(self.memprof, "w") as f:
            f.write(textwrap.dedent(MEMPROF).lstrip())
        os.chmod(self.memprof, 0o755)
        table = os.path.join(self.folder, "table")
        with open(table, "w") as f:
            f.write("# BYTES KEY\n10 forward common\n20 forward 64x3\n30 forward other\n")
        patch = mock.patch.object(dry_runs, "TABLE", table)
        patch.start()
        self.addCleanup(patch.stop)

    def run_with(self, *arguments):
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["dry_runs.py", "-o", self.output, "--memprof", self.memprof, *arguments]), contextlib.redirect_stdout(out):
            status = dry_runs.main()
        return status, out.getvalue()

    def test_commands(self):
        found = dry_runs.recordings()
        self.assertEqual(len(found), 33)
        self.assertEqual(found["zoo/bert"][1:], ["samples/jobs/zoo.py", "--model", "bert", "--iterations", "20", "--seed", "1"])
        self.assertEqual(found["gpt2"][1:], ["samples/jobs/gpt2.py"])

    def test_left_out(self):
        """A job runs without what only its own recording says of convolutions, and sees no card."""
        status, text = self.run_with("--only", "alexnet|zoo/vgg11", "--jobs", "2")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\| zoo/alexnet \| done \| \d+\.\d \| 1 \| 1,234,567 \|")
        self.assertIn("3 of 3 jobs", text)
        with tarfile.open(self.output) as tar:
            plans = [f"dry-runs/{job}{rest}" for job in ("alexnet", "zoo/alexnet", "zoo/vgg11") for rest in ("", "/table")]
            self.assertEqual(sorted(tar.getnames()), sorted(["dry-runs/pairs", *plans]))  # without summaries
            read = lambda name: tar.extractfile("dry-runs/" + name).read().decode()
            for alexnet in ("alexnet", "zoo/alexnet"):
                self.assertEqual(read(alexnet + "/table"), "# BYTES KEY\n10 forward common\n30 forward other\ncards=\n")
            self.assertIn("20 forward 64x3\n", read("zoo/vgg11/table"))
            self.assertEqual(read("pairs"), "samples/alexnet,dry-runs/alexnet\nsamples/zoo/alexnet,dry-runs/zoo/alexnet\nsamples/zoo/vgg11,dry-runs/zoo/vgg11\n")

    def test_failures(self):
        status, text = self.run_with("--only", "zoo/(densenet121|resnet101|vgg16)", "--jobs", "3", "--timeout", "2")
        self.assertEqual(status, 1)
        self.assertIn("zoo/densenet121: exit 3\nmemory is short\n", text)
        self.assertIn("zoo/resnet101: not through after 2.0 s\n", text)
        self.assertIn("1 of 3 jobs", text)
        with tarfile.open(self.output) as tar:
            self.assertEqual(tar.extractfile("dry-runs/pairs").read(), b"samples/zoo/vgg16,dry-runs/zoo/vgg16\n")


if __name__ == "__main__":
    unittest.main()
