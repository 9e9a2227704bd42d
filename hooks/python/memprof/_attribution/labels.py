"""Labels allocations with what they hold: weights, gradients, optimizer state, inputs, KV caches.

A label ends with its allocation, so a new allocation needs a new label. Gradients are labelled
before each step, inputs at each call of the outermost module. Weights, buffers and optimizer
state stay in place; they are labelled when they are new or have moved, which shows in the
addresses of the first and the last of them. No function here keeps a reference to a tensor.
"""

import sys
import weakref
from array import array
from collections import deque
from collections.abc import Mapping
from itertools import islice

from memprof import _hook

# How deep, and how many elements each, nested lists, tuples and dicts are searched for tensors.
DEPTH, BREADTH = 4, 256


class PlainTypes(dict):
    """Maps a type to whether its objects are tensors with data of their own: no wrappers of others. A dry run gives
    fake tensors addresses."""

    def __init__(self, torch):
        super().__init__()
        self._tensor = torch.Tensor

    def __missing__(self, kind):
        ours = "__torch_dispatch__"
        plain = issubclass(kind, self._tensor) and getattr(kind, ours, None) is getattr(self._tensor, ours, None)
        plain = self[kind] = plain or hasattr(kind, "memprof_address")
        return plain


def addresses_of(tensor, plain):
    """The device addresses of a tensor's data, or of the inner tensors of a wrapper."""
    kind = type(tensor)
    if plain[kind]:
        try:
            return (tensor.data_ptr(),) if tensor.is_cuda else ()
        except Exception:  # inside vmap, or not initialised: it has no address
            return ()
    flatten = getattr(kind, "__tensor_flatten__", None)
    if flatten is None:
        return ()
    return tuple(a for name in flatten(tensor)[0] for a in addresses_of(getattr(tensor, name), plain))


@_hook.harmless
def label(tensor, category, name):
    """Labels one tensor of torch, or any object with a `__cuda_array_interface__`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        addresses = addresses_of(tensor, PlainTypes(torch))
    else:
        addresses = (tensor.__cuda_array_interface__["data"][0],)
    batch = Batch()
    for address in addresses:
        batch.add(address, _hook.context(category=category, name=name))
    batch.send()


class Batch:
    """Collects labels, to send them to the hook in one call."""

    def __init__(self):
        self._addresses = array("Q")
        self._contexts = array("I")

    def add(self, address, context):
        if address and context:
            self._addresses.append(address)
            self._contexts.append(context)

    def send(self):
        if self._addresses:
            _send(self._addresses, self._contexts)


def _send(addresses, contexts):
    """Sends labels to the hook, which ignores addresses that are 0 or of the host."""
    _hook.library().memprof_label_many(len(addresses), addresses.buffer_info()[0], contexts.buffer_info()[0])


class Labels:
    """Labels what optimizers and modules hold."""

    def __init__(self, torch):
        self._tensor = torch.Tensor
        self._plain = PlainTypes(torch)
        self._optimizers = {}  # id of an optimizer: its _Optimizer
        self._names = {}  # id of a parameter: (weak reference to it, name)
        self._names_kept = 10000  # at more, those of dead parameters are dropped
        self._contexts = {}  # (category, name, kind of optimizer): number of the context
        self._made = deque(maxlen=BREADTH)  # weak references to tensors that outermost modules returned

    def context(self, category, name, optimizer=""):
        key = category, name, optimizer
        number = self._contexts.get(key)
        if number is None:
            if len(self._contexts) > 100000:  # a job may make new names without end
                self._contexts.clear()
            number = self._contexts[key] = _hook.context(category=category, name=name, optimizer=optimizer)
        return number

    @_hook.harmless
    def weights(self, parameters, buffers):
        """Labels lists of (name, tensor). Returns the Places of the parameters."""
        if len(self._names) > self._names_kept:  # drop those of models that are gone
            self._names = {key: held for key, held in self._names.items() if held[0]() is not None}
            self._names_kept = 10000 + 2 * len(self._names)
        batch = Batch()
        places = Places()
        for name, tensor in parameters:
            self._names[id(tensor)] = weakref.ref(tensor), name
            places.note(tensor, self._add(batch, tensor, "weights", name))
        for name, tensor in buffers:
            self._add(batch, tensor, "weights", name)
        batch.send()
        return places

    @_hook.harmless
    def moved(self, places):
        return places.moved(self._plain)

    def _add(self, batch, tensor, category, name, optimizer=""):
        addresses = addresses_of(tensor, self._plain)
        for address in addresses:
            batch.add(address, self.context(category, name, optimizer))
        return addresses

    def _name(self, tensor):
        reference, name = self._names.get(id(tensor), (None, ""))
        return name if reference is not None and reference() is tensor else ""

    @_hook.harmless
    def gradients(self, optimizer):
        """Labels the gradients of the optimizer's parameters.

        They are new allocations in each iteration, so they are labelled in each: a whole list in
        one call, or tensor by tensor where a gradient is of an unusual type.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        known = self._known(optimizer)
        if len(known.gradients) != len(parameters):
            known.gradients = array("I", [self.context("gradients", self._name(p)) for p in parameters])
        found = [p.grad for p in parameters]
        if {type(gradient) for gradient in found} <= {self._tensor, type(None)}:
            try:
                _send(array("Q", [0 if gradient is None else gradient.data_ptr() for gradient in found]), known.gradients)
                return
            except Exception:  # a sparse gradient has no data pointer
                pass
        batch = Batch()
        for gradient, context in zip(found, known.gradients):
            if gradient is not None:
                for address in addresses_of(gradient, self._plain):
                    batch.add(address, context)
        batch.send()

    @_hook.harmless
    def state(self, optimizer):
        """Labels the optimizer's state if its size differs from the last call's, or it has moved."""
        known = self._known(optimizer)
        state = optimizer.state
        if len(state) == known.states and not known.places.moved(self._plain):
            return
        known.states, known.places = len(state), Places()
        batch, kind = Batch(), type(optimizer).__name__  # NAdam keeps the same for a parameter as Adam
        for parameter, values in state.items():
            for name, tensor in tensors_in(values, self._name(parameter), self._plain):
                addresses = self._add(batch, tensor, "optimizer", name, kind)
                if addresses:  # step counters are on the host
                    known.places.note(tensor, addresses)
        batch.send()

    def _known(self, optimizer):
        known = self._optimizers.get(id(optimizer))
        if known is None:
            optimizers, key = self._optimizers, id(optimizer)
            known = optimizers[key] = _Optimizer(weakref.ref(optimizer, lambda _: optimizers.pop(key, None)))
        return known

    @_hook.harmless
    def inputs(self, args, kwargs):
        """Labels the tensors that a module is called with, except outputs of other modules."""
        made = {id(tensor) for tensor in (reference() for reference in self._made) if tensor is not None}
        batch = Batch()
        for i, value in enumerate(args):
            self._label_input(batch, value, str(i), made)
        for name, value in kwargs.items():
            self._label_input(batch, value, name, made)
        batch.send()

    def _label_input(self, batch, value, name, made):
        for name, tensor in tensors_in(value, name, self._plain):
            if tensor.grad_fn is None and id(tensor) not in made:
                self._add(batch, tensor, "inputs", name)

    @_hook.harmless
    def outputs(self, value, kwargs):
        """Labels the KV cache that a module was called with or returned, if there is one.

        Remembers what the module returned, which `inputs` does not label.
        """
        cache = getattr(value, "past_key_values", None)
        if cache is None:
            cache = kwargs.get("past_key_values")
        if cache is not None:
            self._cache(cache)
        self._made.extend(weakref.ref(tensor) for _, tensor in tensors_in(value, "", self._plain))

    def _cache(self, cache):
        batch = Batch()
        for name, tensor in tensors_in(_layers(cache), "", self._plain):
            self._add(batch, tensor, "kv_cache", name)
            self._made.append(weakref.ref(tensor))
        batch.send()


class NoLabels:
    """Labels nothing."""

    def gradients(self, optimizer):
        pass

    state = gradients


class Places:
    """The addresses of the first and the last of some tensors, to detect that they have moved."""

    def __init__(self):
        self._ends = []  # at most two pairs of (weak reference, addresses)

    def any(self):
        return bool(self._ends)

    def note(self, tensor, addresses):
        del self._ends[1:]
        self._ends.append((weakref.ref(tensor), addresses))

    def moved(self, plain):
        for reference, addresses in self._ends:
            tensor = reference()
            if tensor is None or addresses_of(tensor, plain) != addresses:
                return True
        return False


class _Optimizer:
    """What has been labelled for one optimizer."""

    def __init__(self, reference):
        self._reference = reference  # keeps the callback alive that drops this object
        self.gradients = array("I")  # contexts, in the order of the parameters
        self.states = 0  # entries of its state at the last labelling
        self.places = Places()


def _layers(cache):
    """The tensors of a KV cache, nested: it is a tuple of them, or of one of transformers' classes."""
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return [{"keys": getattr(layer, "keys", None), "values": getattr(layer, "values", None)} for layer in layers]
    keys = getattr(cache, "key_cache", None)
    if keys is not None:
        return [{"keys": k, "values": v} for k, v in zip(keys, getattr(cache, "value_cache", keys))]
    return cache


def tensors_in(value, name, plain, depth=DEPTH):
    """Pairs of (dotted name, tensor) of the tensors in nested lists, tuples and dicts."""
    kind = type(value)
    if plain[kind] or hasattr(kind, "__tensor_flatten__"):
        yield name, value
        return
    if isinstance(value, (list, tuple)):
        elements = enumerate(value)
    elif isinstance(value, Mapping):
        elements = value.items()
    else:
        return
    if depth > 0:
        for key, element in islice(elements, BREADTH):
            yield from tensors_in(element, "%s.%s" % (name, key) if name else str(key), plain, depth - 1)
