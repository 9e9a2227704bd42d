"""Reads a snapshot as pytorch.org/memory_viz does and checks what that relies on.

    python3 snapshot.py FILE

Its unpickler knows the opcodes below and no protocol above 4. It replays the trace backwards from
the segments at the end: each block must lie within a segment at every step, and in the end nothing may be
left. Prints JSON: the snapshot itself if it is small, and for each device the greatest and last sums of
what allocations asked for.
"""

import json
import pickle
import pickletools
import sys

KNOWN = set(
    "APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO SETITEMS "
    "SHORT_BINUNICODE STOP TUPLE2 APPEND NEWFALSE BINPUT BINUNICODE EMPTY_TUPLE NEWTRUE NONE BINFLOAT TUPLE TUPLE1 TUPLE3 "
    "LONG_BINPUT LIST DICT SETITEM".split()
)
FIELDS = {"action", "addr", "size", "stream", "time_us", "frames"}


def load(path):
    with open(path, "rb") as file:
        raw = file.read()
    for op, argument, at in pickletools.genops(raw):
        assert op.name in KNOWN, (op.name, at)
        assert op.name != "PROTO" or 2 <= argument <= 4, argument
        assert op.name != "LONG1" or -(1 << 63) <= argument < 1 << 63, argument
    return pickle.loads(raw)


def check_frames(frames):
    for frame in frames:
        assert set(frame) == {"name", "filename", "line"}, frame
        assert isinstance(frame["name"], str) and isinstance(frame["filename"], str) and isinstance(frame["line"], int), frame


def at_end(snapshot, device):
    """Segments by address and live blocks by address, as the snapshot says."""
    segments, blocks = [], {}
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at, (s["address"], b)
            assert b["state"] in ("active_allocated", "active_pending_free", "inactive"), b
            assert 0 <= b["requested_size"] <= b["size"], b
            check_frames(b["frames"])
            if b["state"] != "inactive" and s["device"] == device:
                blocks[at] = b["requested_size"]
            at += b["size"]
        assert at == s["address"] + s["total_size"], (at, s["address"], s["total_size"])
        active = [b for b in s["blocks"] if b["state"] != "inactive"]
        assert s["active_size"] == sum(b["size"] for b in active), s["address"]
        assert s["requested_size"] == sum(b["requested_size"] for b in active), s["address"]
        assert s["allocated_size"] == sum(b["size"] for b in active if b["state"] == "active_allocated"), s["address"]
        if s["device"] == device:
            segments.append((s["address"], s["address"] + s["total_size"]))
    return segments, blocks


def backwards(trace, segments, blocks):
    for e in reversed(trace):
        begin, action = e.get("addr", 0), e["action"]
        end = begin + e["size"]
        if action == "free_completed":
            assert begin not in blocks, e
            blocks[begin] = e["size"]
        elif action == "free_requested":
            assert begin in blocks, e
        elif action == "alloc":
            assert blocks.pop(begin) == e["size"], e
        elif action in ("segment_map", "segment_alloc"):
            at = [s for s in segments if s[0] <= begin and end <= s[1]]
            assert len(at) == 1, (e, segments)
            segments.remove(at[0])
            segments += [s for s in ((at[0][0], begin), (end, at[0][1])) if s[0] < s[1]]
        elif action in ("segment_unmap", "segment_free"):
            assert not [s for s in segments if s[0] < end and begin < s[1]], e
            segments.append((begin, end))
            segments = joined(segments) if action == "segment_unmap" else segments
        if action == "free_completed":
            assert any(s[0] <= begin < s[1] for s in segments), e
        elif action.startswith("segment"):
            for addr in blocks:
                assert any(s[0] <= addr < s[1] for s in segments), (e, hex(addr))
    assert not blocks and not segments, (blocks, segments)


def joined(segments):
    out = []
    for begin, end in sorted(segments):
        if out and out[-1][1] == begin:
            begin = out.pop()[0]
        out.append((begin, end))
    return out


def main():
    snapshot = load(sys.argv[1])
    greatest, final = [], []
    for device, trace in enumerate(snapshot["device_traces"]):
        t = most = last = 0
        for e in trace:
            assert FIELDS - set(e) == ({"addr"} if e["action"] == "oom" else set()), e
            check_frames(e["frames"])
            assert e["time_us"] >= last, e
            last = e["time_us"]
            t += e["size"] if e["action"] == "alloc" else -e["size"] if e["action"] == "free_requested" else 0
            most = max(most, t)
        greatest.append(most)
        final.append(t)
        backwards(trace, *at_end(snapshot, device))
    out = {"greatest": greatest, "final": final}
    if sum(map(len, snapshot["device_traces"])) < 1000:
        out["snapshot"] = snapshot
    json.dump(out, sys.stdout, indent=1, sort_keys=True)
    print()


main()
