"""Ends iterations, unless the script does by `memprof.iteration()`.

Training: an iteration ends with the step of an optimizer, or with a step that a GradScaler
skips. Of several optimizers the one that stepped first leads: each of its steps ends an
iteration.

Inference (no optimizer): an iteration ends with the outermost call of a module that has
parameters. Of several modules the first leads. While gradients are enabled, backward may
follow such a call, so the iteration ends when the next call begins.

Training without an optimizer of torch's: once backward has followed a call, each backward
ends an iteration, and calls end none.
"""

import weakref

# When another optimizer or module has taken this many turns since the leader's last, it becomes
# the leader: the job has moved on. A critic takes several steps a round, but not this many.
OPTIMIZER_PATIENCE = 10
MODULE_PATIENCE = 1000


class Round:
    """Counts the turns of several optimizers or modules, of which one leads."""

    def __init__(self, longest):
        self._longest = longest
        self._leader = None  # a weak reference
        self._since = {}  # id of another one: its turns since the leader's last turn

    def turn(self, who):
        """Counts a turn of `who`. True when the round ends: `who` leads, or becomes the leader."""
        leader = self._leader and self._leader()
        if leader is not who and leader is not None:
            turns = self._since[id(who)] = self._since.get(id(who), 0) + 1
            if turns < self._longest:
                return False
        if leader is not who:
            self._leader = weakref.ref(who)
        self._since.clear()
        return True


class Iterations:
    """Ends iterations by `mark()`, a function without arguments."""

    def __init__(self, mark):
        self._mark = mark
        self._optimizers = Round(OPTIMIZER_PATIENCE)
        self._modules = Round(MODULE_PATIENCE)
        self._has_optimizer = False
        self._has_backward = False
        self._owed = False  # a forward has ended; its iteration ends at the next one, unless backward follows
        self.automatic = True
        self.steps = 0  # of all optimizers

    def optimizer_made(self):
        self._has_optimizer = True
        self._owed = False

    def stepped(self, optimizer):
        """An optimizer has stepped, or a GradScaler has skipped its step."""
        self.optimizer_made()
        self.steps += 1
        if self._optimizers.turn(optimizer):
            self._end()

    def by_forward(self):
        """Whether outermost calls of modules end iterations: no optimizer and no backward has been seen."""
        return self.automatic and not self._has_optimizer and not self._has_backward

    def forward_begins(self):
        """An outermost module is called, or the script ends."""
        if self._owed:
            self._owed = False
            self._end()

    def forward_ended(self, module, may_go_backward):
        """The call of an outermost module has returned."""
        if not self.by_forward() or not self._modules.turn(module):
            return
        if may_go_backward:
            self._owed = True
        else:
            self._end()

    def backward_ended(self):
        """The outermost run of backward has returned: without an optimizer it ends an iteration."""
        self._has_backward = True
        self._owed = False
        if not self._has_optimizer:
            self._end()

    def _end(self):
        if self.automatic:
            self._mark()
