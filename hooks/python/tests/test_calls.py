"""The types of the hook's C functions, which memprof._calls reads from hooks/capture/memprof.h, and its structs."""

import ctypes
import os
import re
import sys
import unittest

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(HOOKS, "python"))

from memprof import _calls  # noqa: E402
from memprof._tags.regions import PauseError  # noqa: E402

NUMBERS = {name: getattr(ctypes, "c_" + name.replace("_t", "")) for name in ("int", "int32_t", "uint32_t", "int64_t", "uint64_t")}
NUMBERS.update(size_t=ctypes.c_size_t)
STRUCTS = {"memprof_tag_usage": _calls.TagUsage, "memprof_graph_usage": _calls.GraphUsage}
STRUCTS.update(memprof_stat=_calls.Stat, memprof_stats=_calls.Stats, memprof_listed=_calls.Listed)


class Header:
    """The declarations of memprof.h, without comments and directives."""

    def __init__(self, text):
        self.text = text = re.sub(r"//[^\n]*|^#[^\n]*|^extern[^\n]*", "", text, flags=re.M)
        self.structs = {name: _fields(body) for name, body in re.findall(r"\bstruct (\w+) \{(.*?)\};", text, re.S)}
        self.constants = {name: int(value) for name, value in re.findall(r"\b(MEMPROF_\w+) = (-?\d+)", text)}


def _split(arguments):
    """The arguments of a declaration; those of a function pointer among them stay together."""
    parts, depth = [""], 0
    for c in " ".join(arguments.split()):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def _fields(body):
    """(name, type) of each member of a struct."""
    fields = []
    for line in body.split(";"):
        if line.strip() and "(" not in line:
            kind, names = re.match(r"((?:enum |struct )?\w+) (.*)", " ".join(line.split())).groups()
            fields += [(name.strip(" *"), kind) for name in names.split(",")]
    return fields


def _member(kind):
    """The ctype of a struct's member."""
    if kind.startswith("struct "):
        return STRUCTS[kind[len("struct ") :]]
    return ctypes.c_int if kind.startswith("enum") else NUMBERS[kind]


class CallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(HOOKS, "capture", "memprof.h")) as file:
            cls.header = Header(file.read())

    def test_signatures(self):
        pointer, text, number, word = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64
        for name, expected in {
            "memprof_active": [ctypes.c_int],
            "memprof_iteration": [None, text],
            "memprof_context_cell": [pointer],
            "memprof_pause_message": [text],
            "memprof_capture_name": [None, text, word, word, word],
            "memprof_graph_memory_open": [number, ctypes.c_int, word],
            "memprof_malloc_in_pool": [pointer, ctypes.c_size_t, ctypes.c_int, pointer, word, word],
            "memprof_kv_append_many": [None, word, ctypes.c_size_t, pointer, pointer],
            "memprof_pause": [ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_int],
            "memprof_share_tag": [ctypes.c_int, text, ctypes.c_int, pointer, pointer],
            "memprof_capture_names": None,
        }.items():
            self.assertEqual(_calls.signature(self.header.text, name), expected, name)

    def test_all_that_python_calls_is_declared(self):
        called = set(_calls.QUICK)
        for folder, _, files in os.walk(os.path.join(HOOKS, "python", "memprof")):
            for name in files:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name)) as file:
                        called |= set(re.findall(r"\.(memprof_(?!torch)\w+)\(", file.read()))
        self.assertGreater(len(called), 50)
        self.assertEqual([name for name in sorted(called) if _calls.signature(self.header.text, name) is None], [])

    def test_functions_of_the_saver_are_as_declared(self):
        with open(os.path.join(HOOKS, "capture", "api_saver.c")) as file:
            text = file.read()
        block = text[text.index("visibility push") : text.index("visibility pop")]
        declared = {name: (result.strip(), arguments) for result, name, arguments in re.findall(r"^([\w ]+[ *]+)(\w+)\((.*)\);$", block, re.M)}
        for name, row in _calls.SAVER.items():
            result, arguments = declared[name]
            self.assertEqual(len(row) - 1, 0 if arguments == "void" else len(_split(arguments)), name)
            self.assertEqual(row[0] is None, result == "void", name)

    def test_structs_are_as_declared(self):
        for name, struct in STRUCTS.items():
            declared = [(field, _member(kind)) for field, kind in self.header.structs[name]]
            self.assertEqual(struct._fields_, declared, name)

    def test_constants_are_as_declared(self):
        self.assertEqual(_calls.KV_ALL, self.header.constants["MEMPROF_KV_ALL"])
        errors = {name: value for name, value in vars(PauseError).items() if name.isupper()}
        for name, value in errors.items():
            self.assertEqual(value, self.header.constants["MEMPROF_" + name], name)
        self.assertEqual(len(errors), 10)

    def test_no_other_place_declares(self):
        for folder, _, files in os.walk(os.path.join(HOOKS, "python")):
            for name in files:
                if name.endswith(".py") and name not in ("_calls.py", "test_calls.py"):
                    with open(os.path.join(folder, name)) as file:
                        text = file.read()
                    self.assertNotRegex(text, r"memprof_\w+\.(argtypes|restype)", name)
                    if os.path.basename(folder) != "tests":
                        self.assertNotRegex(text, r"\.(argtypes|restype)\b", name)


if __name__ == "__main__":
    unittest.main()
