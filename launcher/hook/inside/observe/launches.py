# The host's time to launch the kernels of a call of the root and of its backward: a micro batch takes
# no less, however few samples it has. Nothing here waits for the device. If the device is far behind,
# its queue is full and each launch waits for it. Then the host's time is the device's. The lag shows
# that: the device's time since an instant when it was idle, less the host's.
import sys
import time

from ..base import process

CALLS = 5  # calls of the root that are followed; the first one loads the kernels
LAG = 2e-3  # seconds: a full queue takes the device longer

now = time.perf_counter


class Launches:
    """Follows the first calls of the root on a device with a queue."""

    def __init__(self, meter):
        self.meter, self.calls, self.open, self.idle = meter, [], None, None

    def wanted(self):
        return len(self.calls) < CALLS

    @process.guarded
    def begin(self, lists):
        """Begins a call. lists are those of blocks.find."""
        if self.idle is None and self.meter.idle():
            self.idle = self.meter.timer(), now()
        self.open = Call([(each["path"], each["count"]) for each in lists], self.meter.timer())
        self.calls.append(self.open)

    def enters(self, path, since):
        """Called when a block begins. The hook itself has been busy since then."""
        call, call.path = self.open, path
        if not call.blocks:
            call.before = since - call.at
        call.own += now() - since
        call.entered = now()

    def leaves(self, since):
        """Called when a block has ended. The hook itself has been busy since then."""
        call = self.open
        call.own += now() - since
        if call.path is not None:
            call.left = since
            call.blocks.setdefault(call.path, []).append(call.left - call.entered)
            call.path = None

    @process.guarded
    def end(self, output):
        call, self.open = self.open, None
        call.ended, call.end = now(), self.meter.timer()
        node = backpropagated(output, 0)
        if hasattr(node, "register_prehook"):  # since PyTorch 2.0
            self.watch(call, node)

    def watch(self, call, node):
        """Measures the backward that begins with a node."""
        engine = sys.modules["torch"].autograd.Variable._execution_engine

        @process.guarded
        def over():
            call.backward, call.done = (now(), call.began), self.meter.timer()

        @process.guarded
        def begins(gradients):
            handle.remove()
            call.began = now()
            engine.queue_callback(over)

        handle = node.register_prehook(begins)

    def lag(self, timer, at):
        """Return the seconds by which the device was behind at a time of the host, None if that is not known."""
        if self.idle is None or timer is None or not self.meter.over(timer):
            return None
        return self.meter.between(self.idle[0], timer) - (at - self.idle[1])

    def behind(self, timer, at):
        lag = self.lag(timer, at)
        return lag is None or lag > LAG

    @process.guarded
    def report(self):
        """Return the shortest times, {} if there are none. A time at most is not better known: of a cold
        call, or one that may have begun with a full queue."""
        found = {}
        for i, call in enumerate(self.calls):
            whole = not self.behind(call.end, call.ended)
            forward, most = call.forward(whole and i > 0), i == 0 or self.behind(call.timer, call.at) or not call.blocks and not whole
            if (call.ended or call.blocks) and better(found, "forward_seconds", forward, most):
                found.update(forward_seconds=forward, at_most=most)
            if i and call.backward and not self.behind(call.done, call.backward[0]):
                seconds = call.backward[0] - call.backward[1]
                found["backward_seconds"] = min(seconds, found.get("backward_seconds", seconds))
        return found


def better(found, key, seconds, most):
    return key not in found or (most, seconds) < (found["at_most"], found[key])


class Call:
    """One call of the root."""

    ended = left = 0.0  # when it and its last block ended, 0 if it failed before
    end = began = backward = done = path = None

    def __init__(self, lists, timer):
        self.lists, self.timer, self.blocks, self.before, self.own = lists, timer, {}, 0.0, 0.0
        self.at = self.entered = now()

    def forward(self, whole):
        """Return the seconds of the launches: of the whole call, if none of them waited for the device. Else
        the quicker blocks count, as later ones may have waited. A block that was not reached takes as
        long as the one before it."""
        if self.ended and (whole or not self.blocks):
            return self.ended - self.at - self.own
        blocks, one = 0.0, 0.0
        for path, count in self.lists:
            times = self.blocks.get(path)
            one = sorted(times)[len(times) // 4] if times else one
            blocks += count * one
        # Before the first block, and after the last one, there is no more than another; a cold call loads kernels there.
        return blocks + min(self.before, one) + (min(self.ended - self.left, one) if self.ended else 0.0)


def backpropagated(value, depth):
    """Return the node of the graph that a backward of an output begins with, None if it is not known."""
    node = getattr(value, "grad_fn", None)
    if node is not None or depth > 1:
        return node
    if hasattr(value, "values"):
        value = list(value.values())
    nodes = (backpropagated(each, depth + 1) for each in value[:8]) if isinstance(value, (list, tuple)) else ()
    return next((node for node in nodes if node is not None), None)
