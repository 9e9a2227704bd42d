"""The keeper: a process that holds shared memory of a card for processes that come and go.

It has neither CUDA nor memory of its own on the card, only file descriptors of physical handles, and each
keeps its memory allocated. It takes them from their owner as any peer does, and serves them to peers as the
owner does, so `memprof.attach` sees no difference (hooks/capture/arena/share.c has the messages):

    owner ──handles──▶ keeper ──handles──▶ peer, or the owner's successor

Run as a program it reads {"path", "shared", "device", "about"} from stdin, holds the memory, writes PATH, and
prints nothing, or why it could not. It ends when a process of the same user asks it to.
"""

import json
import os
import resource
import socket
import struct
import sys
import tempfile

REQUEST = struct.Struct("<2Q")  # address, kind: WHOLE or END
ANSWER = struct.Struct("<4Q")  # handles, where the first is mapped, 0, bytes to the end of the last
PIECE = struct.Struct("<2Q")  # place of a handle from there, its bytes; its descriptor is attached
CREDENTIALS = struct.Struct("3i")
WHOLE, END = 1, 2
WAITS = 60  # seconds for each message of the other side


def connect(name):
    """A connection to the process that serves memory under the name "memprof-arena SOCKET ADDRESS"."""
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(WAITS)
    try:
        peer.connect("\0" + name.split()[1])
    except OSError:
        peer.close()
        raise
    return peer


def _exactly(peer, size):
    data = peer.recv(size, socket.MSG_WAITALL)
    if len(data) != size:
        raise ConnectionError("the other process has ended")
    return data


class Arena:
    """The handles of one arena: (place, bytes, descriptor)."""

    def __init__(self, name):
        self.address = int(name.split()[2], 16)
        self.pieces = []
        with connect(name) as owner:
            owner.sendall(REQUEST.pack(self.address, WHOLE))
            handles, self.base, _, self.span = ANSWER.unpack(_exactly(owner, ANSWER.size))
            if handles == 0:
                raise ConnectionError("%s is not mapped any more" % name)
            for _ in range(handles):
                data, descriptors, _, _ = socket.recv_fds(owner, PIECE.size, 1, socket.MSG_WAITALL)
                if len(data) != PIECE.size or not descriptors:
                    raise ConnectionError("%s was unmapped meanwhile" % name)
                self.pieces.append((*PIECE.unpack(data), descriptors[0]))

    def send(self, peer):
        peer.sendall(ANSWER.pack(len(self.pieces), self.base, 0, self.span))
        for place, size, descriptor in self.pieces:
            socket.send_fds(peer, [PIECE.pack(place, size)], [descriptor])


class Keeper:
    def __init__(self, shared):
        _allow_descriptors()
        self.arenas = [Arena(name) for name, _, _ in shared]
        self.name = "memprof-keeper-" + os.urandom(8).hex()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + self.name)
        self.listener.listen(64)

    def shared(self):
        return [("memprof-arena %s %x" % (self.name, arena.address), arena.base, arena.span) for arena in self.arenas]

    def serve(self):
        """Answers until a peer asks for the end."""
        while True:
            peer, _ = self.listener.accept()
            with peer:
                peer.settimeout(WAITS)
                try:
                    if self._answer(peer):
                        return
                except OSError:
                    pass  # a peer that died or says nothing is no reason to end

    def _answer(self, peer):
        _, user, _ = CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if user != os.geteuid():
            return False
        address, kind = REQUEST.unpack(_exactly(peer, REQUEST.size))
        if kind == END:
            return True
        found = next((arena for arena in self.arenas if arena.address == address and kind == WHOLE), None)
        if found is None:
            peer.sendall(ANSWER.pack(0, 0, 0, 0))
        else:
            found.send(peer)
        return False


def _allow_descriptors():
    """A handle takes a descriptor, and memory may have thousands of handles."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def write(path, value):
    """Writes the file as a whole, readable by its user alone."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".memprof-")
    try:
        with os.fdopen(descriptor, "w") as f:
            json.dump(value, f)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main():
    wanted = json.load(sys.stdin)
    path = wanted.pop("path")
    try:
        keeper = Keeper(wanted["shared"])
        if os.fork() > 0:
            os._exit(0)  # the starter waits for this process, and must not for the keeper
        write(path, dict(wanted, shared=keeper.shared(), pid=os.getpid()))
    except OSError as error:
        sys.stdout.write(str(error) or type(error).__name__)
        return
    _leave()
    keeper.serve()
    try:
        os.unlink(path)
    except OSError:
        pass


def _leave():
    """Closes the output, for whose end the starter waits, and holds no folder."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.chdir("/")


if __name__ == "__main__":
    main()
