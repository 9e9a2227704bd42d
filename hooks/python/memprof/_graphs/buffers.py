"""Buffers for inputs and outputs of graphs of many shapes, at the size of the largest shape."""

from memprof import _hook
from memprof._graphs.captures import here


class Persistent:
    """Buffers at the size of the largest shape. Each shape uses the first elements.

    Attributes are the whole tensors. Sizes count along the first dimension. The trace has the bytes
    that a shape slices before its capture as the capture's inputs.
    """

    def __init__(self, torch, device, buffers):
        self._tensors = {}
        for name, wanted in buffers.items():
            if hasattr(type(self), name):
                raise ValueError("a persistent buffer cannot be called %s, which is a method: choose another name" % name)
            shape, dtype = (wanted,) if isinstance(wanted, int) else wanted, None
            if isinstance(wanted, torch.Tensor):
                shape, dtype = tuple(wanted.shape), wanted.dtype
            elif len(shape) == 2 and isinstance(shape[0], (tuple, list)):
                shape, dtype = shape
            self._tensors[name] = torch.zeros(tuple(shape), dtype=dtype, device="cuda:%d" % device)
        if _hook.active():
            import memprof

            for name, tensor in self._tensors.items():
                memprof.label(tensor, "inputs", "persistent." + name)

    def __getattr__(self, name):
        try:
            return self.__dict__["_tensors"][name]
        except KeyError:
            raise AttributeError("no persistent buffer is called %s" % name)

    def __iter__(self):
        return iter(self._tensors.values())

    def slices(self, size):
        """The first `size` elements of each buffer, as attributes of one object."""
        return _Slices({name: self._first(name, size) for name in self._tensors})

    def update(self, size=None, **actual):
        """Copies each tensor to the start of its buffer, and zeros the elements after it up to `size`.

        `size` is that of the shape to be replayed; by default, the length of the longest tensor.
        Returns the first `size` elements of each buffer that was named.
        """
        lengths = {name: len(tensor) for name, tensor in actual.items()}
        size = max(lengths.values(), default=0) if size is None else size
        found = {}
        for name, tensor in actual.items():
            found[name] = self._first(name, size)
            if lengths[name] > size:
                raise ValueError("%s has %d elements, more than the shape's %d" % (name, lengths[name], size))
        for name, tensor in actual.items():
            found[name][: lengths[name]].copy_(tensor)
            if lengths[name] < size:
                found[name][lengths[name] :].zero_()
        return _Slices(found)

    def _first(self, name, size):
        buffer = getattr(self, name)
        if not 0 <= size <= len(buffer):
            raise ValueError("%s has %d elements, fewer than %d" % (name, len(buffer), size))
        part = buffer[:size]
        shape = getattr(here, "shape", None)
        if shape is not None:
            shape._inputs[id(buffer)] = max(shape._inputs.get(id(buffer), 0), part.numel() * part.element_size())
        return part


class _Slices:
    def __init__(self, tensors):
        self.__dict__.update(tensors)

    def __iter__(self):
        return iter(self.__dict__.values())
