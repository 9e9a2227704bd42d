"""Keeps adapters of engines from breaking the job: an adapter is switched off at its first error."""

from memprof import _hook


class Unexpected(Exception):
    """The engine does something that the adapter does not know from the versions it was written for."""


class Guard:
    """Runs functions of an adapter until one raises; then the adapter stays off."""

    def __init__(self, what):
        self.what = what
        self.on = True  # until an error
        self._reported = set()

    def __call__(self, function, *arguments, **named):
        if not self.on:
            return None
        try:
            return function(*arguments, **named)
        except Exception as error:
            self.on = False
            self.report("%s: %s; from here on it is not recorded" % (type(error).__name__, error))

    def report(self, text):
        """Adds a problem to the recording, each text once."""
        if text not in self._reported:
            self._reported.add(text)
            _hook.problem("KV cache of %s: %s" % (self.what, text))
