"""Records which nn.Module is running: its name is the context of allocations meanwhile.

torch's global module hooks would do, but torch.compile warns about them and its graphs
change. So Module.__call__ itself is replaced, before torch's compiler is imported, which
then takes the replacement for torch's own. While the compiler traces, the replacement calls
torch's function alone; otherwise the compiler runs our frames as they are (compiler.py).

A module's name is that of named_modules() of the outermost module that was called, without
the steps that wrappers add (`_orig_mod`, DistributedDataParallel's `module`). The outermost
module has the name of its class. When several models are called, the first with parameters
on a GPU has plain names; names of the others begin with their class.
"""

import ctypes
import functools
import threading
import weakref

from memprof import _hook
from memprof._attribution.labels import Places
from memprof._attribution.phases import FORWARD

WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
PARALLEL = {"DistributedDataParallel", "DataParallel"}


class Threads:
    """The state of each thread."""

    def __init__(self):
        self.local = threading.local()

    def current(self):
        try:
            return self.local.thread
        except AttributeError:
            thread = self.local.thread = _Thread()
            return thread


class _Thread:
    __slots__ = ("cell", "busy", "root", "optimizer")

    def __init__(self):
        # The hook reads the thread's context from this number. Storing into a memoryview is quicker
        # than into a ctypes object. Only this thread writes it, and it ends with the thread.
        cell = ctypes.c_uint32.from_address(_hook.library().memprof_context_cell())
        self.cell = memoryview(cell).cast("B").cast("I")
        self.busy = False  # in an outermost module or in a data phase: a module called now is not an outermost one
        self.root = None  # the _Root of the outermost call
        self.optimizer = None  # the optimizer whose step is running


class _Root:
    """A module that was called from outside all modules."""

    def __init__(self, module):
        self.module = weakref.ref(module)
        self.calls = 0
        self.next_look = 0  # the number of the call from which named_modules() may be read again
        self.in_vain = 0  # calls to wait before the next reading; doubles when one finds nothing new
        self.places = None  # Places of its weights when they were labelled


class Modules:
    """Names modules, and wraps their call."""

    def __init__(self, phases, iterations, labels, threads, named, graph_module):
        self._phases = phases
        self._iterations = iterations
        self._labels = labels
        self._threads = threads
        self._graph_module = graph_module  # the class of modules that the compiler makes
        self._named = named  # whether to record names of modules, not phases alone
        self._contexts = {}  # id of a module: number of its context
        self._known = {}  # id of a module: (weak reference to it, its _Root)
        self._names = {}  # number of a context: name of the module
        self._roots = {}  # id of an outermost module: its _Root
        self._plain = _nothing  # weak reference to the model with plain names

    def wrap_call(self, call, is_compiling, is_tracing, may_go_backward):
        """Returns a Module.__call__ that wraps torch's own, `call`."""
        contexts, threads, unknown, named = self._contexts, self._threads.local, self._unknown, self._named
        current, enter, leave = self._threads.current, self._enter, self._leave
        chooses = _only_chooses(call)

        def outermost(thread, module, args, kwargs):
            before = thread.cell[0]
            result = None
            finished = opened = False
            try:
                opened = enter(thread, module, args, kwargs)
                result = call(module, *args, **kwargs)
                finished = True
                return result
            finally:
                thread.busy, thread.root, thread.cell[0] = False, None, before
                if opened:
                    leave(module, finished, result, kwargs, may_go_backward())

        # Every module of a network runs this in every step, so it does as little as it can.
        @functools.wraps(call)  # torch's compiler recognizes the function by its name
        def _wrapped_call_impl(self, *args, **kwargs):
            if is_compiling():
                return call(self, *args, **kwargs)
            try:
                thread = threads.thread
            except AttributeError:
                thread = current()
            if not thread.busy and not is_tracing():
                return outermost(thread, self, args, kwargs)
            if not named:
                return call(self, *args, **kwargs)
            cell = thread.cell
            before = cell[0]
            cell[0] = contexts.get(id(self)) or unknown(thread, self, before)
            try:
                if chooses and self._compiled_call_impl is None:
                    return self._call_impl(*args, **kwargs)
                return call(self, *args, **kwargs)
            finally:
                cell[0] = before

        return _wrapped_call_impl

    @_hook.harmless
    def _enter(self, thread, module, args, kwargs):
        """A module is called from outside all modules. Returns True when a forward phase begins.

        None begins where backward recomputes a module, or where a compiled optimizer runs one:
        those calls stay in their phases.
        """
        thread.busy = True
        made_by_compiler = thread.optimizer is not None and isinstance(module, self._graph_module)
        if self._phases.in_backward() or made_by_compiler or getattr(module, "_is_replica", False):
            thread.cell[0] = self._contexts.get(id(module), thread.cell[0])
            return False
        self._iterations.forward_begins()
        self._phases.begin(FORWARD)
        if self._named:
            self._describe(thread, module, args, kwargs)
        return True

    @_hook.harmless
    def _describe(self, thread, module, args, kwargs):
        thread.root = self._root(module)
        thread.cell[0] = self._contexts.get(id(module), 0)
        if thread.root.places.any():
            self._labels.inputs(args, kwargs)

    @_hook.harmless
    def _leave(self, module, finished, result, kwargs, may_go_backward):
        self._phases.end(FORWARD)
        if finished and self._named:
            self._labels.outputs(result, kwargs)
        if finished and self._iterations.by_forward() and next(module.parameters(), None) is not None:
            self._iterations.forward_ended(module, may_go_backward)

    def _root(self, module):
        """The _Root of a module: that of the model it is part of, else one of its own."""
        root = self._roots.get(id(module))
        if root is None:
            _, root = self._known.get(id(module), (None, None))
            if root is None or root.module() is None:
                root = _Root(module)
        root.calls += 1
        if root.places is None or self._labels.moved(root.places):
            self._look(root)
        return root

    def _look(self, root):
        """Gives names to all modules of the outermost one, and labels its weights."""
        module = root.module()
        paths, top = _paths(module)
        parameters, buffers = [], []
        prefix = "" if self._takes_plain_names(module, paths) else top + "."
        for path, part in paths:
            self._name(part, root, prefix + path if path else top)
            where = prefix + path if path or len(paths) > 1 else top
            for held, found in ((part._parameters, parameters), (part._buffers, buffers)):
                found += [(_join(where.rstrip("."), name), tensor) for name, tensor in held.items() if tensor is not None]
        self._roots[id(module)] = root
        root.places = self._labels.weights(parameters, buffers) or Places()

    def _takes_plain_names(self, module, paths):
        """Whether a model gets plain names: the first with parameters on a GPU does, for as long as it lives,
        or a model that contains that one. A model without such parameters does, too."""
        parts = [part for _, part in paths]
        if not any(p is not None and p.is_cuda for part in parts for p in part._parameters.values()):
            return True
        holder = self._plain()
        if holder is None or any(part is holder for part in parts):
            self._plain = weakref.ref(module)
        return self._plain() is module

    def _name(self, module, root, name):
        key = id(module)
        number = self._contexts[key] = _hook.context(module=name)
        self._names[number] = name
        reference, _ = self._known.get(key, (None, None))
        self._known[key] = reference or weakref.ref(module, lambda _: self._forget(key)), root
        return number

    def _forget(self, key):
        for table in (self._contexts, self._known, self._roots):
            table.pop(key, None)

    def _unknown(self, thread, module, before):
        """The context of a module that has none yet; `before` is its caller's.

        It was added to the outermost module after that was read, or it is no part of it: then its
        name is that of its caller and its class.
        """
        if thread.root is None:
            return before
        return self._find(thread.root, module, before) or before

    @_hook.harmless
    def _find(self, root, module, before):
        if root.calls >= root.next_look:
            self._look(root)
            number = self._contexts.get(id(module))
            if number:
                return number
            root.in_vain = 2 * root.in_vain + 1
            root.next_look = root.calls + root.in_vain
        return self._name(module, root, _join(self._names.get(before, ""), type(module).__name__))


def _nothing():
    return None


def _only_chooses(call):
    """Whether torch's Module.__call__ only chooses between the two functions that it names.

    Then the wrapper makes that choice itself, which saves a call.
    """
    code = getattr(call, "__code__", None)
    return code is not None and code.co_names == ("_compiled_call_impl", "_call_impl") and code.co_varnames == ("self", "args", "kwargs")


def _join(path, name):
    return path + "." + name if path else name


def _paths(module):
    """Pairs of (path, module) for all modules of one, and the name of its class.

    Paths are without the steps that wrappers add. The outermost module that is no wrapper has an
    empty path; the class is its.
    """
    proper, paths = {"": ""}, []
    hidden = set()
    top = type(module).__name__
    for path, part in module.named_modules():
        parent, _, step = path.rpartition(".")
        if step in WRAPPERS or path in hidden:
            proper[path] = proper[parent]
        elif path:
            proper[path] = _join(proper[parent], step)
        if type(part).__name__ in PARALLEL:
            hidden.add(_join(path, "module"))
        if not proper[path]:
            top = type(part).__name__
        paths.append((proper[path], part))
    return paths, top
