"""Reads what a process has spooled: the format of hooks/capture/spool/record.h, for tests."""

import os
import struct

KINDS = {2: "alloc", 3: "free", 10: "iteration", 11: "phase_begin", 12: "phase_end", 27: "stack", 28: "label"}
KINDS.update({40: "kv_reserve", 41: "kv_append", 42: "kv_share", 43: "kv_free", 44: "kv_cache"})
STRING = 255


def read(spool):
    """The events of the only process in a spool directory, as dicts, the known kinds alone."""
    (process,) = os.listdir(spool)
    folder = os.path.join(spool, process)
    data = b""
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".seg")):
        with open(os.path.join(folder, name), "rb") as f:
            data += f.read()
    strings, events = {0: ""}, []
    for at in range(0, len(data), 64):
        (commit,) = struct.unpack_from("<I", data, at)
        if commit >> 16 != 0x4D50:
            break
        if commit & 0xFFFF == STRING:
            _, length, text = struct.unpack_from("<HHI", data, at + 4)
            strings[text] = strings.get(text, "") + data[at + 16 : at + 16 + length].decode()
        elif commit & 0xFFFF in KINDS:
            addr, requested, provided, stream, _, context, thread, _ = struct.unpack_from("<QQQqIIII", data, at + 16)
            event = dict(kind=KINDS[commit & 0xFFFF], addr=addr, requested=requested, provided=provided)
            events.append(dict(event, context=strings[context], thread=thread, stream=stream))
    return events


def stack_of(events, alloc):
    """The frames of an allocation, outermost first."""
    nodes = {e["requested"]: e for e in events if e["kind"] == "stack"}
    fields = dict(f.split("=", 1) for f in alloc["context"].split("\t") if f)
    frames, node = [], int(fields.get("stack", 0))
    while node:
        frames.append(nodes[node]["context"])
        node = nodes[node]["provided"]
    return frames[::-1]
