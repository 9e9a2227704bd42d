"""The table of the hook's C functions in memprof._calls, held against hooks/capture/memprof.h."""

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
STRUCTS = {"memprof_tag_usage": _calls.TagUsage, "memprof_graph_usage": _calls.GraphUsage, "memprof_chunk": _calls.Chunk}
STRUCTS.update(memprof_stat=_calls.Stat, memprof_stats=_calls.Stats, memprof_listed=_calls.Listed)


class Header:
    """The declarations of memprof.h, without comments and directives."""

    def __init__(self, text):
        text = re.sub(r"//[^\n]*|^#[^\n]*|^extern[^\n]*", "", text, flags=re.M)
        self.structs = {name: _fields(body) for name, body in re.findall(r"\bstruct (\w+) \{(.*?)\};", text, re.S)}
        self.constants = {name: int(value) for name, value in re.findall(r"\b(MEMPROF_\w+) = (-?\d+)", text)}
        text = re.sub(r"\b(struct|enum)\s*\w*\s*\{.*?\};", "", text, flags=re.S)
        self.functions = {}
        for statement in text.split(";"):
            found = re.match(r"\s*(?!typedef)([\w \*]+?)\b(memprof_\w+)\((.*)\)\s*$", statement, re.S)
            if found:
                result, name, arguments = found.groups()
                self.functions[name] = [result.strip()] + [a for a in _split(arguments) if a != "void"]


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


def _kinds(declared):
    """The ctypes that stand for an argument or a result as the header declares it; None is void."""
    declared = declared.replace("const ", "").replace("*", " * ")
    if "(" in declared:  # void (*each)(void *self, ...)
        result, arguments = re.match(r"(\w+) \( \*\s+\w+\)\((.*)\)$", " ".join(declared.split())).groups()
        parts = [_kinds(part) for part in [result] + _split(arguments)]
        return [kind for kind in (_calls.EachShared,) if [[kind._restype_]] + [[a] for a in kind._argtypes_] == [part[:1] for part in parts]]
    words = declared.split()
    struct = words[0] == "struct"
    name, stars = words[struct], words.count("*")
    if stars == 0:
        return [NUMBERS[name]] if name != "void" else [None]
    if struct:
        return [ctypes.POINTER(STRUCTS[name])] if name in STRUCTS else []
    if name == "char":
        return [ctypes.c_char_p] if stars == 1 else [ctypes.POINTER(ctypes.c_char_p)]
    if name == "void":
        return [ctypes.c_void_p] if stars == 1 else [ctypes.POINTER(ctypes.c_void_p)]
    return [ctypes.POINTER(NUMBERS[name]), ctypes.c_void_p]


class CallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(HOOKS, "capture", "memprof.h")) as file:
            cls.header = Header(file.read())

    def differences(self, table):
        """What of a table is not as the header declares it."""
        found = []
        for name, row in table.items():
            declared = self.header.functions.get(name)
            if declared is None:
                found.append(name + ": not declared")
            elif len(row) != len(declared):
                found.append("%s: %d arguments, declared %d" % (name, len(row) - 1, len(declared) - 1))
            else:
                found += ["%s: %s, declared %r" % (name, kind, text) for kind, text in zip(row, declared) if kind not in _kinds(text)]
        return found

    def test_functions_are_as_declared(self):
        self.assertEqual(self.differences(_calls.QUICK), [])
        self.assertEqual(self.differences(_calls.WAITING), [])
        self.assertEqual(set(_calls.QUICK) & set(_calls.WAITING), set())

    def test_functions_of_the_saver_are_as_declared(self):
        with open(os.path.join(HOOKS, "capture", "api_saver.c")) as file:
            text = file.read()
        block = text[text.index("visibility push") : text.index("visibility pop")]
        declared = {name: (result.strip(), arguments) for result, name, arguments in re.findall(r"^([\w ]+[ *]+)(\w+)\((.*)\);$", block, re.M)}
        for name, row in _calls.SAVER.items():
            result, arguments = declared[name]
            self.assertEqual(len(row) - 1, 0 if arguments == "void" else len(_split(arguments)), name)
            self.assertEqual(row[0] is None, result == "void", name)

    def test_the_header_is_read_whole(self):
        with open(os.path.join(HOOKS, "capture", "memprof.h")) as file:
            names = set(re.findall(r"^(?!typedef)[\w \*]*\b(memprof_\w+)\(", file.read(), re.M))
        self.assertEqual(names, set(self.header.functions))

    def test_drift_is_found(self):
        text, number, word = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64
        for row, expected in (
            ((None, text, word, word), "memprof_capture_name: 3 arguments, declared 4"),
            ((None, text, word, word, number), "memprof_capture_name: %s, declared 'uint64_t inputs'" % number),
            ((word, text, word, word, word), "memprof_capture_name: %s, declared 'void'" % word),
        ):
            self.assertEqual(self.differences({"memprof_capture_name": row}), [expected])
        self.assertEqual(self.differences({"memprof_capture_names": (None,)}), ["memprof_capture_names: not declared"])
        other = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64)
        self.assertEqual(len(self.differences({"memprof_share_tag": (ctypes.c_int, text, ctypes.c_int, ctypes.c_void_p, other)})), 1)

    def test_structs_are_as_declared(self):
        for name, struct in STRUCTS.items():
            declared = [(field, _member(kind)) for field, kind in self.header.structs[name]]
            self.assertEqual(struct._fields_, declared, name)

    def test_constants_are_as_declared(self):
        self.assertEqual(_calls.KV_ALL, self.header.constants["MEMPROF_KV_ALL"])
        errors = {name: value for name, value in vars(PauseError).items() if name.isupper()}
        for name, value in errors.items():
            self.assertEqual(value, self.header.constants["MEMPROF_" + name], name)
        self.assertEqual(len(errors), 12)

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
