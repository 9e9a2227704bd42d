"""What ends an iteration, unless the script says so itself by `memprof.iteration()`.

In training it is the step of an optimizer, or the step that a GradScaler left out. With
several optimizers an iteration is one round of them: it ends at each step of the one that
stepped first. Without any optimizer it is the outermost call of a module with parameters,
one round of them again: inference. Such a call that backward could still follow is
counted when the next one begins, and not at all when backward does follow: then it is
training by hand, and each backward ends an iteration.
"""

import weakref

# A leader that others overtake this often no longer leads: the job has gone on to another
# phase. Several steps a round are usual (critics); so many are not.
OPTIMIZER_PATIENCE = 10
MODULE_PATIENCE = 1000


class Round:
    """Tells the turns of the one that leads from the turns of those that follow."""

    def __init__(self, patience):
        self._patience = patience
        self._leader = None  # a weak reference
        self._since = {}  # id of a follower to its turns since the leader's

    def turn(self, who):
        """True when this turn of `who` ends a round."""
        leader = self._leader and self._leader()
        if leader is not who and leader is not None:
            turns = self._since[id(who)] = self._since.get(id(who), 0) + 1
            if turns < self._patience:
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
        self._owed = False  # a forward has ended that backward could still follow
        self.automatic = True
        self.steps = 0  # of optimizers, in all

    def optimizer_made(self):
        self._has_optimizer = True
        self._owed = False

    def stepped(self, optimizer):
        """A step is done, or a GradScaler has left it out."""
        self.optimizer_made()
        self.steps += 1
        if self._optimizers.turn(optimizer):
            self._end()

    def by_forward(self):
        """Whether the outermost calls of modules end iterations, as far as is known."""
        return self.automatic and not self._has_optimizer and not self._has_backward

    def forward_begins(self):
        """An outermost module is called."""
        if self._owed:
            self._owed = False
            self._end()

    def forward_ended(self, module, may_go_backward):
        """It has returned."""
        if not self.by_forward() or not self._modules.turn(module):
            return
        if may_go_backward:
            self._owed = True
        else:
            self._end()

    def backward_ended(self):
        """Without an optimizer of torch's each backward ends an iteration."""
        self._has_backward = True
        self._owed = False
        if not self._has_optimizer:
            self._end()

    def _end(self):
        if self.automatic:
            self._mark()
