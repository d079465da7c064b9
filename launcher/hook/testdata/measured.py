# Models of several forms, under a limit of memory that some of them do not fit in. What it
# prints as JSON is what the test compares with.
import gc
import json
import resource
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
WIDE = 1 << 20  # features: 4 MiB for each sample


class Block(nn.Module):
    """Holds its input times two: 8 MiB for each sample in a forward with gradients."""

    def __init__(self, n=WIDE):
        super().__init__()
        self.norm, self.scale = nn.Identity(), nn.Parameter(torch.ones(1))
        self.n = n

    def forward(self, x):
        return (x * self.scale).exp().mul(self.scale)


class Deep(nn.Module):
    def __init__(self, blocks=8, recompute=False):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(blocks))
        self.recompute = recompute

    def forward(self, x):
        for block in self.h:
            x = checkpoint(block, x) if self.recompute else block(x)
        return x


class Pair(nn.Module):
    """An encoder and a decoder, of other sizes."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Deep(3), nn.ModuleDict({"layers": nn.ModuleList(Block() for _ in range(5))})

    def forward(self, x, target=None):
        y = self.encoder(x)
        for block in self.decoder["layers"]:
            target = block(target + y)
        return target


class Stages(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(*(Block() for _ in range(n))) for n in (2, 3))

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


class Heavy(nn.Module):
    """One weight of 64 MiB and next to no activations."""

    def __init__(self):
        super().__init__()
        # No linear module: OpenBLAS spins for ever where it gets no memory.
        self.weight, self.head = nn.Embedding(4096, 4096), nn.Linear(4, 10, bias=False)
        self.convolution = nn.Conv1d(1, 1, 1, bias=False)

    def forward(self, x):
        return self.weight(x)


def data():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))


def limit(mib):
    """Leaves the process so much more than it has."""
    gc.collect()
    resource.setrlimit(resource.RLIMIT_DATA, (data() + mib * MIB, resource.RLIM_INFINITY))


def samples(n, width=WIDE):
    return torch.zeros(n, width)


def rows():
    return torch.zeros(1, 8, dtype=torch.long)


def train(net, batches, accumulate=1, loss=torch.mean, kind=torch.optim.SGD):
    optimizer = kind(net.parameters(), lr=0.0)
    for i, batch in enumerate(batches):
        loss(net(*batch) if isinstance(batch, tuple) else net(batch)).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return optimizer


def several(net, *sizes):
    return train(net, [samples(n) for n in sizes])


def load():
    held = []
    limit(100)
    while True:
        held.append(torch.zeros(10 * MIB // 4))


def forward():
    net = Deep()
    batch = samples(4)
    limit(32 * 3 + 16)  # a block needs 16 for the output of each of its parts
    train(net, [batch])


def loss():
    net, batch = Deep(2), samples(4)
    limit(2 * 32 + 40)
    train(net, [batch], loss=lambda y: sum(y.exp() * n for n in range(20)).mean())


def backward():
    net, batch = Heavy(), rows()
    limit(40)
    train(net, [batch])


def optimizer():
    net, batch = Heavy(), rows()
    limit(64 + 96)
    train(net, [batch], kind=torch.optim.Adam)


def evaluation(trains=True):
    net, big = Deep(), samples(16)
    limit(90)
    if trains:
        several(net, 1)
    net.eval()
    with torch.no_grad():
        net(big)


def later():
    """A longer batch in a step that is no longer looked at."""
    net = Deep()
    limit(8 * 8 + 60)
    train(net, [samples(n) for n in (1, 1, 1, 1, 1)])
    big = samples(8)
    train(net, [big])


def quiet():
    """Return a model that was trained for so long that its steps are only counted, and its batch."""
    limit(200)
    net, batch = Deep(1), samples(1)
    train(net, [batch] * 50)
    return net, batch


def filled(mib):
    """Return what leaves the process so much of its limit."""
    return torch.zeros((resource.getrlimit(resource.RLIMIT_DATA)[0] - data() - mib * MIB) // 4)


def quiet_forward():
    net, batch = quiet()
    held = filled(6)  # noqa: F841
    train(net, [batch])


def quiet_loss():
    net, batch = quiet()
    held = filled(40)  # noqa: F841
    train(net, [batch], loss=lambda y: sum(y.exp() * n for n in range(20)).mean())


def quiet_longer():
    net, _ = quiet()
    several(net, 1, 5, 1)


def quiet_longer_than_all():
    """Batches of two lengths, which are both only counted in the end, and a longer one."""
    limit(200)
    net, batches = Deep(1), [samples(1), samples(2)]
    train(net, batches * 30)
    several(net, 2, 5, 1)


def catches():
    net = Deep()
    batches = [samples(8), samples(1), samples(1)]
    limit(110)
    for batch in batches:
        try:
            train(net, [batch])
        except RuntimeError:
            print("caught", file=sys.stderr)


def catches_and_ends():
    net = Deep()
    several(net, 1, 1, 1, 1)
    big = samples(8)
    limit(110)
    try:
        net(big)
    except RuntimeError:
        pass


def script():
    net = torch.jit.script(Heavy())
    train(net, [rows()] * 5)


def gan():
    first, other = Deep(2), Deep(3)
    a, b = (torch.optim.SGD(net.parameters(), lr=0.0) for net in (first, other))
    for _ in range(4):
        for net, o in ((first, a), (other, b)):
            net(samples(1)).mean().backward()
            o.step()
            o.zero_grad()


def evaluates():
    net = Deep()
    for _ in range(3):
        several(net, 1)
        net.eval()
        with torch.no_grad():
            net(samples(20))
        net.train()


class FSDPModule:
    """What fully_shard puts before a module's class."""


def sharded(net, *units):
    for unit in units:
        unit.__class__ = type("FSDP" + type(unit).__name__, (FSDPModule, type(unit)), {})
    several(net, 1, 1)


def units():
    """Two units of three blocks below one of the other two."""
    net = Deep(2)
    net.rest = nn.ModuleList([Deep(3), Deep(3)])
    sharded(net, net, net.rest[0], net.rest[1])


def one_unit():
    net = Deep()
    sharded(net, net)


def twice(loss):
    net = Deep(2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(2):
        loss(net)
        optimizer.step()
        optimizer.zero_grad()


def penalty():
    def loss(net):
        x = samples(1).requires_grad_()
        grad, = torch.autograd.grad(net(x).mean(), x, create_graph=True)
        grad.norm().backward()

    twice(loss)


def gradient_only():
    """The gradient of an input, of which nothing is derived."""
    def loss(net):
        x = samples(1).requires_grad_()
        y = net(x).mean()
        torch.autograd.grad(y, x, retain_graph=True)
        y.backward()

    twice(loss)


def jvp():
    def loss(net):
        _, tangent = torch.autograd.functional.jvp(net, samples(1), samples(1), create_graph=True)
        tangent.mean().backward()

    twice(loss)


def backward_twice():
    def loss(net):
        net(samples(1)).mean().backward(create_graph=True)
        for p in net.parameters():
            p.grad = p.grad.detach()

    twice(loss)


def forward_mode():
    def loss(net):
        import torch.autograd.forward_ad as forward

        with forward.dual_level():
            y = net(forward.make_dual(samples(1), samples(1)))
            forward.unpack_dual(y).tangent.mean().backward()

    twice(loss)


def pairs(to_none, before_forward):
    """A model that is called twice for one loss, with gradients that are set to zero or let go."""
    net = Deep(2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(3):
        if before_forward:
            optimizer.zero_grad(set_to_none=to_none)
        loss = (net(samples(1)) - net(samples(1))).mean()
        if not before_forward:
            optimizer.zero_grad(set_to_none=to_none)
        loss.backward()
        optimizer.step()


def resumes():
    """An optimizer whose state was loaded before the first call."""
    net = Heavy()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.0)
    for p in net.parameters():
        optimizer.state[p] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    net(rows()).mean().backward()
    optimizer.step()


def forgets():
    """A model that is dropped leaves nothing behind."""
    import weakref

    net = Deep()
    several(net, 1, 1, 1, 1)
    gone = weakref.ref(net), weakref.ref(net.h[0])
    del net
    gc.collect()
    assert [r() for r in gone] == [None, None], "the model is still there"
    other = Deep(2)
    several(other, 1, 1)


WAYS = {
    "plain": lambda: several(Deep(), 2, 2, 2, 2, 2), "accumulate": lambda: train(Deep(), [samples(1)] * 12, accumulate=3),
    "pair": lambda: train(Pair(), [(samples(1), samples(2))] * 2), "stages": lambda: several(Stages(), 1, 1),
    "recompute": lambda: train(Deep(recompute=True), [samples(1).requires_grad_()] * 2), "heavy": lambda: train(Heavy(), [rows()] * 4, kind=torch.optim.Adam),
    "zeroed": lambda: pairs(False, True), "let_go": lambda: pairs(True, True), "let_go_late": lambda: pairs(True, False),
    "evaluation_first": lambda: evaluation(trains=False), "longer": lambda: several(Deep(), 1, 2, 1, 1, 4, 1, 3, 5, 1),
}

if __name__ == "__main__":
    way = sys.argv[1]
    before = data()
    (WAYS.get(way) or globals()[way])()
    print(json.dumps({"before": before}))
