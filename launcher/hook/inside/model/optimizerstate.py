# What an optimizer, or some of its parameters, has before a step: whether the step has written to it, and how it is put back.
import weakref


class Before:
    """The parameters, gradients and states before a step."""

    def __init__(self, optimizer, parameters=None):
        self.optimizer = weakref.ref(optimizer)
        every = parameters_of(optimizer) if parameters is None else parameters
        self.parameters = [(p, p._version, p.grad, None if p.grad is None else p.grad._version) for p in every]
        self.states = {}
        for p in every:
            state = optimizer.state.get(p)
            if state is not None:
                self.states[p] = dict(state), [(v, v._version) for v in state.values() if hasattr(v, "_version")]

    def written(self, skipped=0):
        """Return what was written to since, "" for nothing. The parameters of so many groups are skipped."""
        skip = self.skip(skipped)
        for p, version, gradient, its in self.parameters:
            if id(p) in skip:
                continue
            if p._version != version:
                return "a parameter was written to before memory ran out"
            if p.grad is not gradient or gradient is not None and gradient._version != its:
                return "a gradient was written to before memory ran out"
        if any(v._version != version for p, (_, tensors) in self.states.items() if id(p) not in skip for v, version in tensors):
            return "a state was written to before memory ran out"
        return ""

    def put_back(self, skipped=0):
        """Remove the states that were made since."""
        skip, states = self.skip(skipped), self.optimizer().state
        for p, *_ in self.parameters:
            if id(p) in skip or p not in states:
                continue
            if p not in self.states:
                del states[p]
            else:
                states[p].clear()
                states[p].update(self.states[p][0])

    def skip(self, groups):
        return {id(p) for group in self.optimizer().param_groups[:groups] for p in group["params"]} if groups else ()


def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]
