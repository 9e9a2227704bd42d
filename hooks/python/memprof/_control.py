"""A socket by which `memprof attach PID` starts, stops and asks about the recording of this process.

It is opened at torch's first use of CUDA, in a process that has imported memprof and that `memprof record` does not run:
/tmp/memprof-UID/attach/PID.sock with mode 0600, in a folder with mode 0700. Only the process's own user and root may use it. A
request and its answer are one line of JSON each:

    {"do": "start", "directory": "/data/run"}      {"directory": "/data/run"}
    {"do": "stop"}                                 {"directory": "/data/run"}, or null if it was not recorded
    {"do": "state"}                                {"directory": "/data/run"}, or null
                                                   {"error": "..."}

MEMPROF_ATTACH=0 in the environment leaves it out.
"""

import atexit
import json
import os
import socket
import stat
import struct
import threading

LONGEST = 1 << 16  # bytes of a request
_listening = None


def folder():
    return "/tmp/memprof-%d/attach" % os.geteuid()


def serve():
    """Opens the socket, and has a thread answer. What goes wrong is no matter of the job's."""
    global _listening
    if _listening is not None:
        return
    try:
        for path in (os.path.dirname(folder()), folder()):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return
        os.chmod(folder(), 0o700)
        path = os.path.join(folder(), "%d.sock" % os.getpid())
        if os.path.lexists(path):
            os.unlink(path)  # of a process with this number that was killed
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen(4)
    except OSError:
        return
    _listening = listening
    atexit.register(_remove, path, os.getpid())
    os.register_at_fork(after_in_child=_close)
    threading.Thread(target=_answer_all, args=(listening,), name="memprof attach", daemon=True).start()


def _remove(path, owner):
    if os.getpid() == owner:
        try:
            os.unlink(path)
        except OSError:
            pass


def _close():
    """In a forked child, which the socket is not of."""
    global _listening
    if _listening is not None:
        _listening.close()
        _listening = None


def _answer_all(listening):
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            try:
                connection.settimeout(5)
                _answer(connection)
            except Exception:  # the process that asks reports a connection without an answer
                pass


def _answer(connection):
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user not in (0, os.geteuid()):
        return
    asked = b""
    while not asked.endswith(b"\n") and len(asked) < LONGEST:
        more = connection.recv(4096)
        if not more:
            return
        asked += more
    connection.settimeout(None)
    connection.sendall(json.dumps(_do(json.loads(asked.decode()))).encode() + b"\n")


def _do(request):
    from memprof import _recording

    try:
        if request["do"] == "start":
            return {"directory": _recording.watch(request["directory"])}
        if request["do"] == "stop":
            return {"directory": _recording.stop()}
        if request["do"] == "state":
            return {"directory": _recording.place()}
        return {"error": "an older memprof is in this process: it does not know %r" % request["do"]}
    except Exception as error:
        return {"error": "%s" % error or type(error).__name__}
