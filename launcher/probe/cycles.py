# How many batches make an optimizer step: the root's calls between two steps, measured over
# the first two or three.
import sys
import weakref

process = load("process")


class Cycles:
    """Counts the root's calls, whose class has another __call__ for as long."""

    def __init__(self):
        self.kind, self.calls, self.draws, self.seen, self.optimizers = None, 0, 0, [], set()

    def begin(self, root):
        kind = type(root)
        if issubclass(kind, sys.modules["torch"].jit.ScriptModule):
            return
        self.kind, self.root, self.own = kind, weakref.ref(root), "__call__" in kind.__dict__
        self.plain, self.seen, self.optimizers = kind.__call__, [], set()
        self.calls = 1  # the one that is under way
        plain, enabled, here = self.plain, sys.modules["torch"].is_grad_enabled, process.here
        again = load("loaders").again

        def __call__(self, *args, **kwargs):
            if cycles.kind is not None and cycles.root() is self and self.training and enabled() and here():
                cycles.calls += 1
                again(args, kwargs)
            return plain(self, *args, **kwargs)

        self.mine = load("imports").like(plain, __call__)
        kind.__call__ = self.mine

    def step(self, optimizer):
        """Comes before each step."""
        if self.kind is None:
            return
        if id(optimizer) in self.optimizers or not self.optimizers:
            draws = load("loaders").draws()
            self.seen.append((self.calls, None if draws is None else draws - self.draws))
            self.calls, self.draws = 0, draws or 0
        self.optimizers.add(id(optimizer))
        if len(self.optimizers) > 1 or len(self.seen) == 3 or len(self.seen) == 2 and self.agree(0):
            self.end()

    def agree(self, since):
        (a, drawn), (b, again) = self.seen[since:since + 2]
        return a == b > 0 and drawn in (None, a) and again in (None, b)

    def end(self):
        for since in range(len(self.seen) - 1):
            if len(self.optimizers) == 1 and self.agree(since):
                process.settle("gradient_accumulation_steps", self.seen[since][0], "optimizer steps", process.MEASURED)
                process.save()
                break
        kind, self.kind = self.kind, None
        if kind.__dict__.get("__call__") is self.mine:
            if self.own:
                kind.__call__ = self.plain
            else:
                del kind.__call__

    def finished(self):
        return self.kind is None


cycles = Cycles()
