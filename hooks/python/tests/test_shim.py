"""The shim's cache and its compiler call, with a made-up torch and compiler."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Appends its arguments to a log, takes a while, and "compiles" what the environment says.
COMPILER = """#!/bin/sh
echo "$@" >> "$COMPILER_LOG"
case "$*" in *"$COMPILER_REFUSES"*) echo "shim.cpp:1: error: refused"; exit 1;; esac
while [ $# -gt 0 ]; do [ "$1" = -o ] && output=$2; shift; done
sleep 0.2
echo half > "$output"; echo whole > "$output"
"""

TORCH = """
import os
__version__ = "9.9.0+cu130"
class _C: _GLIBCXX_USE_CXX11_ABI = True
"""


class ShimTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.cache = os.path.join(self.root, "cache")
        self.log = os.path.join(self.root, "log")
        self.write("site/torch/__init__.py", TORCH)
        self.write("site/nvidia/cu13/include/cuda_runtime_api.h", "")
        self.compiler = self.write("c++", COMPILER)
        os.chmod(self.compiler, os.stat(self.compiler).st_mode | stat.S_IXUSR)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        return path

    def start(self, refuses="nothing at all", **environment):
        env = dict(os.environ, CXX=self.compiler, COMPILER_LOG=self.log, COMPILER_REFUSES=refuses, MEMPROF_SHIM_CACHE=self.cache)
        env["PYTHONPATH"] = os.pathsep.join([PYTHON, os.path.join(self.root, "site")])
        for name in ("CUDA_HOME", "CUDA_PATH", "MEMPROF_HOOKS", "MEMPROF_SPOOL", "MEMPROF_SHIM"):
            env.pop(name, None)
        env.update(environment)
        return subprocess.Popen([sys.executable, "-m", "memprof._shim"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, code=0):
        out, err = process.communicate()
        self.assertEqual(process.returncode, code, err)
        return out.strip() if code == 0 else err.strip()

    def compiled(self):
        with open(self.log) as f:
            return f.read().splitlines()

    def test_ranks_starting_at_once_compile_once(self):
        paths = {self.finish(p) for p in [self.start() for _ in range(4)]}
        self.assertEqual(len(paths), 1)
        with open(paths.pop()) as f:
            self.assertEqual(f.read(), "whole\n")
        self.assertEqual(len(self.compiled()), 1)
        self.finish(self.start())  # warm
        self.assertEqual(len(self.compiled()), 1)

    def test_command(self):
        self.finish(self.start())
        (command,) = self.compiled()
        site = os.path.join(self.root, "site")
        self.assertTrue(command.startswith("-std=c++17 "), command)
        self.assertIn("-D_GLIBCXX_USE_CXX11_ABI=1", command)
        self.assertIn("-isystem %s/torch/include -isystem %s/nvidia/cu13/include" % (site, site), command)

    def test_newer_standard_when_the_older_is_refused(self):
        self.finish(self.start(refuses="c++17"))
        self.assertEqual([c.split()[0] for c in self.compiled()], ["-std=c++17", "-std=c++20"])

    def test_failure_names_the_error_and_leaves_nothing(self):
        error = self.finish(self.start(refuses="-std"), code=1)
        self.assertIn("could not compile the shim: shim.cpp:1: error: refused", error)
        self.assertEqual([f for f in os.listdir(self.cache) if not f.endswith(".lock")], [])

    def test_a_compiler_that_is_not_there(self):
        error = self.finish(self.start(CXX="/nonexistent/c++"), code=1)
        self.assertIn("cannot run the C++ compiler /nonexistent/c++: No such file or directory; install one, or build", error)

    def test_a_compiler_that_says_nothing(self):
        error = self.finish(self.start(CXX="/bin/false"), code=1)
        self.assertIn("/bin/false could not compile the shim: it ended with 1 and said nothing", error)

    def test_the_wheel_has_it(self):
        """A shim of the wheel is for a version of torch and a C++ ABI. No compiler is called."""
        shutil.copytree(os.path.join(PYTHON, "memprof"), os.path.join(self.root, "wheel", "memprof"))
        for version, has in (("2.6.0+cu124", True), ("2.6.1", True), ("2.60.0", False)):
            for abi in (False, True):
                self.write("site/torch/__init__.py", "__version__ = %r\nclass _C: _GLIBCXX_USE_CXX11_ABI = %r" % (version, abi))
                shim = self.write("wheel/memprof/_shims/shim-2.6-abi%d.so" % abi, "")
                hooks = os.path.dirname(PYTHON)
                path = os.pathsep.join([os.path.join(self.root, "wheel"), os.path.join(self.root, "site")])
                found = self.finish(self.start(PYTHONPATH=path, MEMPROF_HOOKS=hooks))
                self.assertEqual(found == shim, has, found)
                self.assertEqual(os.path.exists(self.log), not has)

    def test_another_torch_gets_another_shim(self):
        first = self.finish(self.start())
        self.write("site/torch/__init__.py", TORCH.replace("9.9.0", "9.9.1"))
        self.assertNotEqual(self.finish(self.start()), first)
        self.assertEqual(len(self.compiled()), 2)

    def spoiled(self, spoil, moved):
        """Builds a shim, has spoil do something to it, and says that it is built again, elsewhere if moved."""
        first = self.finish(self.start(TMPDIR=self.root))
        spoil(first)
        second = self.finish(self.start(TMPDIR=self.root))
        own = os.path.join(self.root, "memprof-%d" % os.geteuid(), "shim")
        self.assertEqual(os.path.dirname(second), own if moved else self.cache)
        self.assertEqual(len(self.compiled()), 2)
        with open(second) as f:
            self.assertEqual(f.read(), "whole\n")
        self.assertEqual(os.stat(second).st_mode & 0o022, 0)
        self.assertEqual(os.stat(second).st_uid, os.geteuid())
        self.assertEqual(self.finish(self.start(TMPDIR=self.root)), second)
        self.assertEqual(len(self.compiled()), 2)

    def overwrite(self, path):
        with open(path, "w") as f:
            f.write("other\n")

    def test_other_content_of_the_same_size_is_not_loaded(self):
        self.spoiled(self.overwrite, moved=False)

    def test_a_shim_without_a_digest_is_not_loaded(self):
        self.spoiled(lambda shim: os.unlink(shim + ".sha256"), moved=False)

    def test_a_shim_that_others_can_write_is_not_loaded(self):
        self.spoiled(lambda shim: os.chmod(shim, 0o777), moved=False)

    def test_a_link_is_not_loaded(self):
        def link(shim):
            os.rename(shim, shim + ".moved")
            os.symlink(shim + ".moved", shim)

        self.spoiled(link, moved=False)

    def test_a_cache_that_others_can_write_is_not_used(self):
        self.spoiled(lambda shim: os.chmod(self.cache, 0o777), moved=True)

    @unittest.skipIf(os.geteuid() != 0, "only root can give files away")
    def test_a_shim_of_another_user_is_not_loaded(self):
        self.spoiled(lambda shim: os.chown(shim, 65534, -1), moved=False)

    @unittest.skipIf(os.geteuid() != 0, "only root can give files away")
    def test_a_cache_of_another_user_is_not_used(self):
        self.spoiled(lambda shim: os.chown(self.cache, 65534, -1), moved=True)

    def test_a_wide_umask(self):
        before = os.umask(0)
        try:
            shim = self.finish(self.start())
        finally:
            os.umask(before)
        self.assertEqual((os.path.dirname(shim), os.stat(shim).st_mode & 0o777), (self.cache, 0o755))
        self.finish(self.start())
        self.assertEqual(len(self.compiled()), 1)

    def test_a_given_shim_is_taken_as_it_is(self):
        self.assertEqual(self.finish(self.start(MEMPROF_SHIM="/somewhere/shim.so")), "/somewhere/shim.so")
        self.assertFalse(os.path.exists(self.log))

    def test_a_folder_of_the_compiler_is_not_named(self):
        os.symlink("/usr/include", os.path.join(self.root, "site", "torch", "include"))
        self.finish(self.start())
        (command,) = self.compiled()
        self.assertNotIn("torch/include", command)
        self.assertIn("-isystem %s/site/nvidia" % self.root, command)

    def test_no_cuda_header(self):
        os.unlink(os.path.join(self.root, "site/nvidia/cu13/include/cuda_runtime_api.h"))
        if any(os.path.exists(f + "/include/cuda_runtime_api.h") for f in ("/usr/local/cuda", "/usr")):
            self.skipTest("this machine has a CUDA toolkit")
        self.assertIn("no cuda_runtime_api.h found", self.finish(self.start(), code=1))


if __name__ == "__main__":
    unittest.main()
