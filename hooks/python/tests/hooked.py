"""Runs scripts in a process that has the real hook, on the simulated GPU."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(HOOKS, "dist", "libmemprof.so")
SIMULATION = os.path.join(HOOKS, "dist", "sim", "libcuda.so.1")

START = """
import ctypes, memprof, os, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
hook = memprof._hook.library()
M = 2**20

def take(megabytes):
    return hook.memprof_malloc(megabytes * M, 0, None)

def free():
    bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(bytes), ctypes.byref(total)) == 0
    return bytes.value // M

def fill(ptr, value, megabytes):
    return cuda.cuMemsetD8_v2(ctypes.c_uint64(ptr), ctypes.c_ubyte(value), ctypes.c_size_t(megabytes * M))

def first(ptr):
    value = ctypes.c_ubyte()
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(value), ctypes.c_uint64(ptr), ctypes.c_size_t(1)) == 0
    return value.value

def wait_for_end(pid):
    deadline = time.monotonic() + 60
    while os.path.exists("/proc/%d" % pid) and time.monotonic() < deadline:
        time.sleep(0.02)
"""


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION), "the hook is not built: make -C hooks dist")
class HookedTest(unittest.TestCase):
    """A test whose scripts begin with START."""

    def run_script(self, script, hooked=True, more={}, copies=()):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PYTHONPATH=os.path.join(HOOKS, "python"))
            if hooked:
                os.mkdir(os.path.join(folder, "sim"))
                os.symlink(SIMULATION, os.path.join(folder, "sim", "libcuda.so.1"))
                for name in copies:
                    shutil.copy(SIMULATION, os.path.join(folder, "sim", name))
                env.update(LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=os.path.join(folder, "sim"), MEMPROF_SPOOL=folder, MEMPROF_OPTIONS="headroom=0,preset=compact,handle=2097152", **more)
            text = (START if hooked else "import memprof\n") + textwrap.dedent(script)
            done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "", text)
            return done.stdout.split()
