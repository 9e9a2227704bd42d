"""Where memprof's own files are, and the directory of a recording that a process begins itself."""

import datetime
import functools
import json
import os
import shutil
import subprocess
import sys
import time

SCHEMA_VERSION = 1  # of run.json: trace/dataset/schema.go

# How `memprof report` speaks of the recording's device readings, and the hook's option that takes them: the driver
# answers each process, since nobody asks NVML.
READINGS = "cuMemGetInfo: the process began the recording itself"


class PlaceError(Exception):
    """The text says what is missing, or in the way, and what to do."""


def tool():
    """The command line tool: $MEMPROF, or `memprof` of the PATH or beside this Python. None: it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable or ""), "memprof")
    return os.environ.get("MEMPROF") or shutil.which("memprof") or (beside if os.access(beside, os.X_OK) else None)


@functools.lru_cache(maxsize=None)
def hooks():
    """The folder with the hook, memprof.h and the source of the shim: $MEMPROF_HOOKS, or where this package lies, or where the tool puts them."""
    around = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    given = os.environ.get("MEMPROF_HOOKS")
    if given or os.path.exists(os.path.join(around, "torch", "shim.cpp")):
        return given or around
    program = tool()
    if program is None:  # nothing of the hook is in this process
        return around
    done = subprocess.run([program, "doctor", "hooks", "path"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=_plain())
    if done.returncode != 0:
        raise PlaceError(done.stderr.decode(errors="replace").strip() or "memprof doctor hooks path ended with %d" % done.returncode)
    return done.stdout.decode().strip()


def shims():
    """The folder of compiled shims, which all versions of memprof share."""
    given = os.environ.get("MEMPROF_SHIM_CACHE")
    if given:
        return given
    folder = hooks()
    return os.path.join(folder, "shims") if os.path.isdir(os.path.join(folder, "dist")) else os.path.join(os.path.dirname(folder), "shim")


def library():
    """The file of the hook."""
    for name in ("libmemprof.so", os.path.join("dist", "libmemprof.so")):
        file = os.path.join(hooks(), name)
        if os.path.exists(file):
            return file
    raise PlaceError("no libmemprof.so in %s: put the program memprof on the PATH, or set $MEMPROF to it" % hooks())


def make(directory, describe):
    """Makes the directory of a recording, or joins the one that other processes are recording there. Returns it and its spool.

    `describe` gives the fields of run.json that the first process writes. A recording there that is complete stays: the
    directory is then called after it, with a number.
    """
    wanted = directory
    for number in range(2, 1000):
        os.makedirs(directory, exist_ok=True)
        info = _info(directory)
        if info is None:
            _write_info(directory, describe())
            info = _info(directory) or {}
        if info.get("processes") is None and not os.path.lexists(os.path.join(directory, "spool-finished")):
            spool = os.path.join(directory, "spool")
            try:
                os.mkdir(spool, 0o700)
            except FileExistsError:
                owner = os.stat(spool).st_uid
                if owner != os.geteuid():
                    raise PlaceError("%s: user %d records there, who would get this process's events" % (directory, owner))
            return directory, os.path.realpath(spool)
        directory = "%s-%d" % (wanted, number)
    raise PlaceError("%s and 998 directories called after it hold recordings: remove some" % wanted)


def _info(directory):
    try:
        with open(os.path.join(directory, "run.json")) as f:
            return json.load(f)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PlaceError("%s/run.json is not memprof's: %s" % (directory, error))


def _write_info(directory, fields):
    """Writes run.json, unless another process has been faster."""
    identity = os.urandom(8).hex()
    start = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    info = dict(schema_version=SCHEMA_VERSION, id=identity, start=start, clock_base_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    info.update(memprof_version=_version(), command=_command(), host=os.uname().nodename, os=_os_name(), kernel=os.uname().release, **fields)
    temporary = os.path.join(directory, ".run.json.%s.tmp" % identity)
    with open(temporary, "w") as f:
        json.dump(info, f, indent=2)
        f.write("\n")
    try:
        os.link(temporary, os.path.join(directory, "run.json"))
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)


def _version():
    try:
        from importlib.metadata import version

        return version("memprof")
    except Exception:  # it was not installed by pip
        return ""


def _command():
    with open("/proc/self/cmdline", "rb") as f:
        return [part.decode(errors="replace") for part in f.read().rstrip(b"\0").split(b"\0")]


def _os_name():
    try:
        with open("/etc/os-release") as f:
            return next((line.split("=", 1)[1].strip().strip("\"'") for line in f if line.startswith("PRETTY_NAME=")), "Linux")
    except OSError:
        return "Linux"


def _plain():
    """The environment without what concerns recordings."""
    return {k: v for k, v in os.environ.items() if k not in ("MEMPROF_WATCH", "MEMPROF_WATCH_OPTIONS", "MEMPROF_SPOOL", "LD_PRELOAD")}


def collect(directory, ring=None):
    """Starts the collector of a recording, unless there is one: it writes events as Parquet until the recorded processes have ended.

    It is no child of this process, which may wait for its own. Without the tool the events stay in the spool until
    `memprof report` completes the recording: False.
    """
    program = tool()
    if program is None:
        return False
    command = [program, "record", "--finish", directory, "--wait"] + (["--ring", str(ring)] if ring else [])
    script = 'exec "$0" "$@" </dev/null >/dev/null 2>&1 &'
    subprocess.run(["/bin/sh", "-c", script] + command, stdin=subprocess.DEVNULL, start_new_session=True, check=True, env=_plain())
    return True


def completed(directory, seconds):
    """Waits until the collector has completed the recording, at most so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(os.path.lexists(os.path.join(directory, name)) for name in ("spool", "spool-finished")):
            return True
        time.sleep(0.02)
    return False
