"""Models whose blocks do not repeat are recomputed in parts that cover most of what they save."""
import copy
import unittest
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import equal
from harness import Saved, part, rungs


def images(step):
    torch.manual_seed(100 + step)
    return torch.randn(4, 3, 16, 16)


def conv(given, made, drop=0.0):
    return nn.Sequential(
        nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU(inplace=True), nn.Dropout2d(drop),
        nn.Conv2d(made, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.inner, self.short = conv(given, made), nn.Conv2d(given, made, 1)

    def forward(self, x):
        return F.relu(self.inner(x) + self.short(x))


class ResNet(nn.Module):
    """Stages of one block each."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 4)
        self.layer1, self.layer2 = nn.Sequential(Residual(4, 6)), nn.Sequential(Residual(6, 8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.layer2(F.max_pool2d(self.layer1(self.stem(x)), 2)).mean((2, 3)))


class UNet(nn.Module):
    """Later stages use what earlier ones made."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleDict({"first": conv(3, 4, 0.2), "second": conv(4, 8)})
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = conv(8, 4)
        self.out = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        first = self.down["first"](x)
        second = self.down["second"](F.max_pool2d(first, 2))
        return self.out(self.last(torch.cat([self.up(second), first], 1)))


class Generator(nn.Module):
    """One long Sequential, as the two models of a GAN are."""

    def __init__(self):
        super().__init__()
        layers: list = []
        for given, made in ((3, 8), (8, 6), (6, 6), (6, 4)):
            layers += [nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.LeakyReLU(0.2), nn.Dropout(0.1)]
        self.main = nn.Sequential(*layers, nn.Conv2d(4, 1, 3), nn.Tanh())

    def forward(self, x):
        return self.main(x).flatten(1)


MODELS = {"stages of a residual net": ResNet, "skip connections": UNet, "one Sequential": Generator}


class Depth(equal.EqualTraining):
    """Where nothing was measured, the parts are those nearest to the root."""


class Measured(unittest.TestCase):
    def chosen(self, model, x):
        rungs()
        segments = part("segments")
        before = copy.deepcopy(model.state_dict())
        with segments.Measured(model) as measured:
            model(x)
        model.load_state_dict(before)
        return measured, measured.choose()

    def train(self, model, chosen=None):
        if chosen is not None:
            part("checkpointing").cover(model, chosen, tell=self.fail, reads=True)
        torch.manual_seed(3)
        model.train()
        optimizer, losses, gradients = torch.optim.SGD(model.parameters(), 0.1), [], []
        for step in range(3):
            optimizer.zero_grad()
            loss = model(images(step)).square().mean()
            loss.backward()
            losses.append(loss.item())
            gradients.append([p.grad.clone() for p in model.parameters()])
            optimizer.step()
        return losses, gradients, list(model.state_dict().values()), [torch.get_rng_state()]

    def same(self, make):
        torch.manual_seed(1)
        model = make()
        plain = self.train(copy.deepcopy(model))
        measured, chosen = self.chosen(model, images(0))
        self.assertTrue(chosen)
        found = self.train(model, chosen)
        self.assertEqual(found[0], plain[0])
        for k, (one, other) in enumerate(zip(found[1] + [found[2], found[3]], plain[1] + [plain[2], plain[3]])):
            for i, (a, b) in enumerate(zip(one, other)):
                self.assertTrue(torch.equal(a, b), (k, i, a, b))
        with Saved(model) as kept:
            model(images(0))
        whole = measured.size(set(measured.saved))
        self.assertLess(kept.bytes, 0.6 * whole, "little of what is saved is recomputed")

    def test_same_bytes_as_are_saved(self):
        model = UNet()
        measured, _ = self.chosen(model, images(0))
        with Saved(model) as saved:
            model(images(0))
        self.assertAlmostEqual(measured.size(set(measured.saved)) / saved.bytes, 1, delta=0.1)

    def test_module_of_two_calls_is_no_part(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.again = conv(3, 3), conv(3, 3)

            def forward(self, x):
                return self.again(self.again(self.first(x)))

        model = Twice()
        _, chosen = self.chosen(model, images(0))
        self.assertNotIn(id(model.again), [id(each.module) for each in chosen])

    def test_part_does_not_begin_with_what_writes_to_its_input(self):
        model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.ReLU(inplace=True), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.GELU(), nn.Sigmoid())])
        _, chosen = self.chosen(nn.Sequential(conv(3, 3), model), images(0))
        self.assertTrue(chosen)
        for each in chosen:
            if each.module is model:
                self.assertNotIsInstance(model[each.first], nn.ReLU)

    def test_blocks_that_hold_all_are_enough(self):
        measured, chosen = self.chosen(ResNet(), images(0))
        self.assertEqual(measured.choose([each.module for each in chosen if each.first is None]), [])


for name, make in MODELS.items():
    setattr(Depth, "test_" + name.replace(" ", "_"), lambda self, make=make: self.equal(make, images, steps=4))
    setattr(Measured, "test_" + name.replace(" ", "_"), lambda self, make=make: self.same(make))
for name in dir(equal.EqualTraining):
    if name.startswith("test_"):
        setattr(Depth, name, None)  # they are equal.py's


class Others(unittest.TestCase):
    def test_models_that_other_optimizers_train(self):
        """The generator of a GAN is recomputed with its discriminator, which is the root; a frozen copy is not."""
        rungs()
        root, other = Generator(), ResNet()
        frozen = copy.deepcopy(other)
        with Saved(other) as before:
            other(images(0))
        optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (root, other)]
        part("optimizers").made[:] = map(weakref.ref, optimizers)
        checkpointing = part("checkpointing")
        checkpointing.turn(root)
        self.assertTrue(part("forwards").is_recomputed(root))
        other(images(0))
        with Saved(other) as after:
            other(images(0))
        self.assertLess(after.bytes, 0.6 * before.bytes)
        self.assertFalse(part("forwards").is_recomputed(frozen))
        self.assertEqual([id(each) for each in part("optimizers").other_models(root)], [id(other)])


class Token:
    pass


class Branch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fails, token):
        ctx.fails, ctx.token = fails, token
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.fails:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return gradient, None, None


class Queue(unittest.TestCase):
    def test_failed_backward_leaves_nothing(self):
        """The branches that the engine had not come to are freed with the rest of the graph."""
        rungs()
        garbage = part("garbage")
        token = Token()
        gone = weakref.ref(token)
        trunk = Branch.apply(torch.zeros(2, requires_grad=True), False, token)
        loss = (trunk * 2 + Branch.apply(trunk * 3, True, None)).sum()
        del token, trunk
        with self.assertRaises(RuntimeError) as raised:
            loss.backward()
        failure, raised = raised.exception, None
        del loss
        garbage.release(failure)
        self.assertIsNone(gone())

    def test_failed_recomputation_leaves_nothing(self):
        """The input of the part that was recomputed is freed, although the error's traceback is kept."""
        rungs()
        garbage = part("garbage")

        class Fails(nn.Module):
            calls = 0

            def forward(self, x):
                self.calls += 1
                if self.calls > 1:
                    raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
                return torch.tanh(x)

        x = nn.Linear(3, 3)(torch.randn(2, 3))
        gone = weakref.ref(x)
        loss, failure = checkpoint(Fails(), x, use_reentrant=False).sum(), None
        del x
        try:
            loss.backward()
        except RuntimeError as e:
            failure = e
        del loss
        trace = failure.__traceback__
        garbage.release(failure)
        self.assertIsNone(gone())
        self.assertIsNotNone(trace)
