"""What the adapters of engines share: they never break the job, and give up at a surprise."""

from memprof import _hook


class Surprise(Exception):
    """Something is not as in the versions that are known."""


class Guard:
    """Runs what an adapter does until something goes wrong; then the adapter is off for good."""

    def __init__(self, what):
        self.what = what
        self.on = True
        self._told = set()

    def __call__(self, function, *arguments):
        if not self.on:
            return None
        try:
            return function(*arguments)
        except Exception as error:
            self.on = False
            self.tell("%s: %s; what follows is not told" % (type(error).__name__, error))

    def tell(self, text):
        """A problem of the recording, once."""
        if text not in self._told:
            self._told.add(text)
            _hook.problem("keys and values of %s: %s" % (self.what, text))
