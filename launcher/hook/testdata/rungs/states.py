"""The optimizer's states in host memory, on a CPU that is taken for a device: what a training leaves is that of the job
alone, bit by bit, whatever optimizer, loop or habit."""
import contextlib
import copy
import gc
import io
import itertools
import pickle
import sys
import unittest

import torch
from torch import nn

from harness import part, rungs, some

STEPS, SAVED = 30, 13
FUSED = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 4)  # on the CPU

FORMS = {
    "adam": (torch.optim.Adam, {}), "adam amsgrad": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "adam foreach": (torch.optim.Adam, {"foreach": True, "weight_decay": 0.1}), "adam maximize": (torch.optim.Adam, {"maximize": True}),
    "adamw": (torch.optim.AdamW, {"foreach": False}), "adamw foreach": (torch.optim.AdamW, {"foreach": True}),
    "adamw amsgrad foreach": (torch.optim.AdamW, {"amsgrad": True, "foreach": True}),
    "sgd momentum": (torch.optim.SGD, {"momentum": 0.9}), "sgd nesterov foreach": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True, "weight_decay": 0.1}),
    "sgd dampening": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
    "rmsprop centered": (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}), "rmsprop foreach": (torch.optim.RMSprop, {"foreach": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.01}), "adagrad foreach": (torch.optim.Adagrad, {"foreach": True}),
    "nadam": (torch.optim.NAdam, {}), "nadam foreach": (torch.optim.NAdam, {"foreach": True, "weight_decay": 0.1}),
    "radam": (torch.optim.RAdam, {}),
    "adamax": (torch.optim.Adamax, {"weight_decay": 0.1}), "adamax foreach": (torch.optim.Adamax, {"foreach": True}),
    "adadelta": (torch.optim.Adadelta, {}), "adadelta foreach": (torch.optim.Adadelta, {"foreach": True}),
    "asgd": (torch.optim.ASGD, {"t0": 5}), "asgd foreach": (torch.optim.ASGD, {"t0": 5, "foreach": True}),
    "rprop": (torch.optim.Rprop, {}),
}
if not torch.__version__.startswith("1."):  # there its parameters are not numbers after some steps
    FORMS["radam foreach"] = torch.optim.RAdam, {"foreach": True}
if FUSED:
    FORMS.update({
        "adam fused": (torch.optim.Adam, {"fused": True}), "adamw fused": (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
        "sgd fused": (torch.optim.SGD, {"fused": True, "momentum": 0.9}), "adagrad fused": (torch.optim.Adagrad, {"fused": True}),
    })


class Net(nn.Module):
    def __init__(self, bf16=False):
        super().__init__()
        self.embed, self.up, self.norm, self.down = nn.Embedding(19, 6), nn.Linear(6, 33), nn.LayerNorm(33), nn.Linear(33, 3)
        if bf16:
            self.to(torch.bfloat16)

    def forward(self, x):
        return self.down(torch.tanh(self.norm(self.up(self.embed(x)))).mean(1))


def batch(step):
    return torch.randint(19, (4, 5), generator=torch.Generator().manual_seed(step))


def groups(net):
    return [{"params": [*net.embed.parameters(), *net.up.parameters()]}, {"params": [*net.norm.parameters(), *net.down.parameters()], "lr": 3e-3}]


def saved(*values):
    """Return what torch.save writes, as bytes."""
    file = io.BytesIO()
    torch.save(values if len(values) > 1 else values[0], file)
    return file.getvalue()


class Case(unittest.TestCase):
    """Each test trains with the remedy and without it."""

    size = 900  # bytes of the states that visit at once: most parts have one parameter, some two

    def setUp(self):
        rungs()
        self.part, self.states, self.visits, self.process, self.repeats = part("optimizerstep"), part("states"), part("visits"), part("process"), part("repeats")
        self.states.DEVICES, self.states.SMALLEST, self.states.PART = ("cpu", "cuda"), 0, self.size
        self.process.world = lambda: 0
        self.steps = {}
        self.brought = []
        plain = self.visits.Way.bring

        def bring(way, slot):
            self.brought.append(len(slot.guests))
            plain(way, slot)

        self.visits.Way.bring = bring

    def tearDown(self):
        self.unguard()

    def order(self, on=True, rungs=("offload-optimizer",), guards=True):
        self.guards = guards
        if not guards:
            self.unguard()
        self.process.state["orders"] = {"hooks": True, "in_place": {"rungs": list(rungs), "optimizer": True}}
        self.process.told.clear()
        self.repeats.entries.clear()
        self.states.ordered["on"] = on
        self.brought.clear()

    def guard(self, kind):
        """Guard the steps of a class; all are as PyTorch has them when a test begins."""
        self.steps.setdefault(kind, vars(kind).get("step"))
        self.part.wrap(kind)

    def made(self, kind, groups, **words):
        optimizer = kind(groups, **dict({"lr": 1e-2}, **words))
        if self.guards:
            self.guard(kind)
        return optimizer

    def unguard(self):
        for kind, step in self.steps.items():
            if step is not None:
                kind.step = step
            elif "step" in vars(kind):
                del kind.step
            if "load_state_dict" in vars(kind):
                del kind.load_state_dict
        self.steps.clear()

    def away(self, optimizer):
        one = self.states.offloaded.get(id(optimizer))
        return one.away() if one is not None else 0

    def same(self, one, other, words=""):
        self.assertEqual(len(one), len(other))
        for i, (a, b) in enumerate(zip(one, other)):
            if torch.is_tensor(a):
                self.assertTrue(torch.equal(a, b) and a.dtype == b.dtype and a.device == b.device and a.stride() == b.stride(), "%s %d: %s is not %s" % (words, i, a, b))
            else:
                self.assertEqual(a, b, words)


def kept(net, optimizer):
    """Return parameters and states, in their order."""
    found = list(net.state_dict().values())
    for state in optimizer.state_dict()["state"].values():
        for name, value in sorted(state.items()):
            found += [name, value]
    return found


class Forms(Case):
    def train(self, name, on, steps=range(STEPS), resumed=None, bf16=False):
        kind, words = FORMS[name]
        torch.manual_seed(0)
        net = Net(bf16)
        self.order(on, guards=on)
        optimizer = self.made(kind, groups(net), **words)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        if resumed is not None:
            model, states, scheduled = torch.load(io.BytesIO(resumed))
            net.load_state_dict(model)
            if on:
                self.states.leave(optimizer, 0)
            optimizer.load_state_dict(states)
            schedule.load_state_dict(scheduled)
        checkpoint = None
        for step in steps:
            net(batch(step)).float().square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            if step == SAVED:
                checkpoint = saved(net.state_dict(), optimizer.state_dict(), schedule.state_dict())
        if on:
            self.assertGreater(self.away(optimizer), 0)
            self.assertGreater(len(self.brought), len(steps))
        self.assertEqual(part("wall").state["off"], 0)
        return kept(net, optimizer), checkpoint

    def test_forms(self):
        for name in some(FORMS, 3):
            with self.subTest(form=name):
                want, checkpoint = self.train(name, False)
                got, other = self.train(name, True)
                self.same(got, want)
                self.assertEqual(other, checkpoint, "what torch.save writes")
                rest = range(SAVED + 1, STEPS)
                # Saved with the remedy and resumed without it, and the other way round.
                self.same(self.train(name, False, rest, other)[0], want, "resumed without")
                self.same(self.train(name, True, rest, checkpoint)[0], want, "resumed with")

    def test_sixteen_bits(self):
        for name in ("adamw", "sgd momentum", "adam foreach"):
            want, checkpoint = self.train(name, False, bf16=True)
            got, other = self.train(name, True, bf16=True)
            self.same(got, want)
            self.assertEqual(other, checkpoint)


def loops():
    """Yields habits that could notice: each is a function of a net and an optimizer that trains, and returns what it has seen."""
    def loop(net, optimizer, step, loss=None, scale=1.0):
        loss = net(batch(step)).square().mean() if loss is None else loss
        (loss * scale).backward()
        return loss

    def state_read(net, optimizer, make):
        seen = []
        for step in range(8):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
            for p in net.parameters():
                state = optimizer.state[p]
                seen += [str(state["exp_avg"].device), state["exp_avg"].clone(), state["exp_avg_sq"].norm(), tuple(state["exp_avg"].stride())]
            seen.append(str(optimizer.state))
            seen.append(repr(optimizer))
        return seen

    def state_held(net, optimizer, make):
        """The job keeps a state, and looks at it and writes to it later."""
        seen, mine = [], None
        for step in range(8):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
            mine = mine if mine is not None else [optimizer.state[p]["exp_avg"] for p in net.parameters()]
            seen += [m.clone() for m in mine]
            if step == 4:
                for m in mine:
                    m.mul_(0.5)
            seen.append(all(m is optimizer.state[p]["exp_avg"] for m, p in zip(mine, net.parameters())))
        return seen

    def average(net, optimizer, make):
        shadow = copy.deepcopy(net)
        for step in range(8):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            with torch.no_grad():
                for a, b in zip(shadow.parameters(), net.parameters()):
                    a.lerp_(b, 0.1)
        return list(shadow.parameters())

    def clipped_by_value(net, optimizer, make):
        for step in range(8):
            loop(net, optimizer, step)
            nn.utils.clip_grad_value_(net.parameters(), 1e-3)
            optimizer.step()
            optimizer.zero_grad()
        return []

    def accumulated(net, optimizer, make):
        for step in range(12):
            loop(net, optimizer, step, scale=1 / 3)
            if step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        return []

    def unfrozen(net, optimizer, make):
        net.up.requires_grad_(False)
        for step in range(8):
            if step == 4:
                net.up.requires_grad_(True)
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return []

    def added(net, optimizer, make):
        extra = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            extra.weight.copy_(torch.eye(3))
        for step in range(8):
            if step == 4:
                optimizer.add_param_group({"params": extra.parameters(), "lr": 1e-4})
            loop(net, optimizer, step, extra(net(batch(step))).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return list(extra.parameters())

    def closure(net, optimizer, make):
        seen = []
        for step in range(8):
            def again():
                optimizer.zero_grad()
                seen.append(torch.is_grad_enabled())
                return loop(net, optimizer, step)

            seen.append(optimizer.step(again).detach())
        return seen

    def twice(net, optimizer, make):
        for step in range(6):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.step()
            optimizer.zero_grad()
        return []

    def without_gradients(net, optimizer, make):
        for step in range(6):
            if step % 2:
                loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return []

    def scaled(net, optimizer, make):
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        for step in range(6):
            scaler.scale(loop(net, optimizer, step)).detach()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return []

    def warmup(net, optimizer, make):
        one = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
        two = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
        seen = []
        for step in range(8):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
            one.step() if step < 4 else two.step()
            seen += [group["lr"] for group in optimizer.param_groups]
        return seen

    def loaded(net, optimizer, make):
        """Steps are taken back: a checkpoint in memory is loaded in mid-run, also one that was loaded before."""
        seen, held = [], None
        for step in range(9):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
            if step == 2:
                held = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
            if step in (4, 6):
                net.load_state_dict(held[0])
                optimizer.load_state_dict(held[1])
                seen.append(saved(held[1]))
        return seen

    def pickled(net, optimizer, make):
        for step in range(4):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
        seen = [saved(optimizer.state_dict()), saved(optimizer.state_dict()["state"][1])]
        other = pickle.loads(pickle.dumps(optimizer))
        third = copy.deepcopy(optimizer)
        for one in (other, third):
            for group in one.param_groups:
                for p in group["params"]:
                    p.grad = torch.ones_like(p)
            one.step()
            seen += [v for state in one.state.values() for v in state.values()]
        return seen

    def cleared(net, optimizer, make):
        for step in range(6):
            if step == 3:
                optimizer.state.clear()
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
        return []

    def replaced(net, optimizer, make):
        """The job ends an optimizer and goes on with another one."""
        for step in range(6):
            if step == 3:
                optimizer = make()
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
        return [v for state in optimizer.state.values() for v in state.values()]

    def two_of_them(net, optimizer, make):
        half = torch.optim.Adam(net.down.parameters(), lr=1e-3)
        optimizer.param_groups[1]["params"] = list(net.norm.parameters())
        for step in range(6):
            loop(net, optimizer, step)
            optimizer.step()
            half.step()
            net.zero_grad()
        return [v for state in half.state.values() for v in state.values()]

    def moved(net, optimizer, make):
        """A state is written to and replaced by the job, as restarts of the momentum do."""
        for step in range(8):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
            if step == 3:
                for p in net.parameters():
                    optimizer.state[p]["exp_avg"].zero_()
                    optimizer.state[p]["exp_avg_sq"] = optimizer.state[p]["exp_avg_sq"] * 2
        return []

    def hooked(net, optimizer, make):
        seen = []
        if hasattr(optimizer, "register_step_pre_hook"):
            optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(sum(len(g["params"]) for g in o.param_groups)))
            optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(sum(float(s["exp_avg"].sum()) for s in o.state.values())))
        for step in range(5):
            loop(net, optimizer, step)
            optimizer.step()
            optimizer.zero_grad()
        return seen

    def rates(net, optimizer, make):
        """Per-layer learning rates that the job changes by hand."""
        for step in range(6):
            loop(net, optimizer, step)
            for i, group in enumerate(optimizer.param_groups):
                group["lr"] *= 0.9 - 0.1 * i
            optimizer.step()
            optimizer.zero_grad()
        return []

    found = dict(locals())
    del found["loop"]
    return found


class Habits(Case):
    def train(self, habit, on, **words):
        torch.manual_seed(0)
        net = Net()
        self.order(on, guards=on)
        optimizer = self.made(torch.optim.AdamW, groups(net), **words)
        if on:
            self.guard(torch.optim.Adam)
        seen = habit(net, optimizer, lambda: self.made(torch.optim.AdamW, groups(net), **words))
        if on:
            self.assertGreater(len(self.brought), 4)
        self.assertEqual(part("wall").state["off"], 0)
        return kept(net, optimizer) + seen, [type(optimizer.state), [sorted(g) for g in optimizer.param_groups]]

    def test_habits(self):
        for n, (name, habit) in enumerate(loops().items()):
            for foreach in some((n % 2 == 0, n % 2 == 1), 2):
                with self.subTest(habit=name, foreach=foreach):
                    want, kinds = self.train(habit, False, foreach=foreach)
                    got, others = self.train(habit, True, foreach=foreach)
                    self.same(got, want, name)
                    self.assertEqual(kinds, others)

    def test_memory_is_given_back(self):
        """Host memory goes with the optimizer."""
        slabs = []
        plain = part("hosttensors").Slab.__init__

        def made(slab, size, device):
            plain(slab, size, device)
            import weakref

            slabs.append(weakref.ref(slab))

        part("hosttensors").Slab.__init__ = made
        self.train(loops()["rates"], True)
        gc.collect()
        self.assertTrue(slabs)
        self.assertEqual([s for s in slabs if s() is not None], [])
        self.assertEqual(len(self.states.offloaded), 0)


class Refused(Case):
    def reason(self, optimizer, gradients=True):
        for group in optimizer.param_groups:
            for p in group["params"] if gradients else ():
                p.grad = torch.ones_like(p)
        self.order()
        self.guard(type(optimizer))
        why = self.states.leave(optimizer, 0)
        self.assertEqual(id(optimizer) in self.states.offloaded, not why)
        return why

    def test_classes(self):
        class Own(torch.optim.AdamW):
            pass

        ps = list(Net().parameters())
        others = [torch.optim.LBFGS(ps), Own(ps)]
        for name in ("Muon", "Adafactor"):
            if hasattr(torch.optim, name):
                others.append(getattr(torch.optim, name)([p for p in ps if p.dim() == 2]))
        for one in others:
            self.assertIn("not known to treat each parameter by itself", self.reason(one))

    def test_sparse(self):
        embed = nn.Embedding(5, 3, sparse=True)
        optimizer = torch.optim.Adagrad(embed.parameters())
        embed(torch.tensor([1])).sum().backward()
        self.assertIn("gradients are sparse", self.reason(optimizer, gradients=False))

    def test_options(self):
        ps = [nn.Parameter(torch.ones(3))]
        self.assertIn("differentiable", str(torch.optim.Adam(ps, differentiable=True)))
        self.assertIn("is differentiated", self.reason(torch.optim.Adam(ps, differentiable=True)))
        optimizer = torch.optim.Adam(ps)
        optimizer.param_groups[0]["capturable"] = True
        self.assertIn("CUDA graph", self.reason(optimizer))

    def test_parameters(self):
        class Own(nn.Parameter):
            pass

        self.assertIn("of a class that is not PyTorch's own", self.reason(torch.optim.Adam([Own(torch.ones(3))])))
        meta = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, device="meta"))]
        self.assertIn("several devices", self.reason(torch.optim.Adam(meta), gradients=False))
        p = nn.Parameter(torch.ones(3, 4))
        p.grad = torch.ones(4, 3).t()
        self.assertIn("another layout", self.reason(torch.optim.Adam([p]), gradients=False))

    def test_device(self):
        self.states.DEVICES = ("cuda",)
        self.assertIn("the model trains on the CPU", self.reason(torch.optim.Adam([nn.Parameter(torch.ones(3))])))
        self.assertIn("the model trains on the CPU", self.states.refusal(Net()))

    def test_host_memory(self):
        part("room").host = lambda: 1 << 20
        optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1 << 18))])
        self.assertIn("each rank can have 0.0 GiB of the host's memory", self.reason(optimizer))
        self.assertEqual(self.states.leave(optimizer, (2 << 20) - (1 << 19)), "")  # for what has to leave there is room

    def test_a_step_that_mixes_parameters(self):
        """One of PyTorch's optimizers whose step was changed."""
        plain = torch.optim.Adam.step

        def step(self, closure=None):
            size = sum(p.grad.norm() for group in self.param_groups for p in group["params"])
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = p.grad / size
            return plain(self)

        torch.optim.Adam.step = step
        try:
            self.assertIn("differs from that over all", self.reason(torch.optim.Adam([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))])))
        finally:
            torch.optim.Adam.step = plain

    def test_host_memory_that_ends_in_between(self):
        """What the host does not take stays on the device, and the training is the same."""
        parameters = []
        for most in (sys.maxsize, 3000):
            torch.manual_seed(0)
            net = Net()
            self.order()
            optimizer = self.made(torch.optim.Adam, groups(net))
            hosttensors, left = part("hosttensors"), [most]
            plain = hosttensors.Arena.pair

            def pair(arena, tensor):
                left[0] -= hosttensors.bytes_of(tensor)
                if left[0] < 0:
                    raise hosttensors.NoRoom("no more")
                return plain(arena, tensor)

            hosttensors.Arena.pair = pair
            try:
                for step in range(4):
                    net(batch(step)).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            finally:
                hosttensors.Arena.pair = plain
            self.assertGreater(self.away(optimizer), 0)
            parameters.append(kept(net, optimizer))
        self.same(*parameters)

    def test_a_later_step_that_cannot_be_parted(self):
        """Gradients that become sparse, say: the step is the job's own, on the states where they are."""
        found = []
        for on in (False, True):
            torch.manual_seed(0)
            embed = nn.Embedding(7, 3)
            self.order(on, guards=on)
            optimizer = self.made(torch.optim.SGD, embed.parameters(), momentum=0.9)
            for step in range(6):
                embed.sparse = step >= 3
                embed(torch.tensor([1, step])).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.assertEqual(self.away(optimizer) > 0, on)
            found.append(kept(embed, optimizer))
        self.same(*found)


@contextlib.contextmanager
def falling(*at):
    """Have memory run out at the calls of these numbers, of PyTorch's functions that make states."""
    names, count = ("zeros_like", "clone", "full_like", "ones_like"), [0]
    plain = {name: getattr(torch, name) for name in names}

    def counting(own):
        def call(*args, **kwargs):
            count[0] += 1
            if count[0] in at:
                torch.empty(1 << 60, dtype=torch.uint8)
            return own(*args, **kwargs)

        return call

    for name in names:
        setattr(torch, name, counting(plain[name]))
    try:
        yield count
    finally:
        for name in names:
            setattr(torch, name, plain[name])


class RunsOut(Case):
    """Memory runs out in a step of the optimizer, before anything was written."""

    def train(self, kind, at=None, falls=(), add=None, thaw=None, closure=False, permitted=True, **words):
        torch.manual_seed(0)
        net = Net()
        if thaw is not None:
            net.down.requires_grad_(False)
        self.order(False, ("offload-optimizer",) if permitted else ())
        optimizer = self.made(kind, groups(net), **words)
        extra, outputs = nn.Parameter(torch.ones(3)), []
        for step in range(7):
            if step == add:
                optimizer.add_param_group({"params": [extra]})
            if step == thaw:
                net.down.requires_grad_(True)
            loss = (net(batch(step)) * extra).square().mean()
            loss.backward()
            with falling(*(falls if step == at else ())) as count:
                outputs.append(optimizer.step((lambda: loss) if closure else None))
            self.hits = count[0] if step == at else getattr(self, "hits", 0)
            optimizer.zero_grad(set_to_none=True)
            extra.grad = None
        self.assertEqual(part("wall").state["off"], 0)
        found = [o.detach() for o in outputs if o is not None]
        return kept(net, optimizer) + found + [extra.detach()], self.away(optimizer)

    def rescued(self, kind, at, falls, **words):
        want, _ = self.train(kind, **words)
        got, away = self.train(kind, at, falls, **words)
        self.same(got, want)
        entry, = self.process.told["in_place"]
        self.assertEqual((entry["phase"], entry["step"], entry["times"], entry["rung"]), ("optimizer", entry["step"], 1, "offload-optimizer" if away else ""))
        self.assertEqual((entry["elements"], entry["longest"]), (1, 1) if away else (0, 0))
        return away

    def test_first_step(self):
        kinds = torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam, torch.optim.RMSprop, torch.optim.Adamax
        falls = 1, 4, 6  # of the first group, and of the second, when the first has been written to
        for kind, foreach, fall, closure in some(itertools.product(kinds, (False, True), falls, (False, True)), 7):
            with self.subTest(kind=kind.__name__, foreach=foreach, fall=fall, closure=closure):
                self.assertGreater(self.rescued(kind, 0, (fall,), foreach=foreach, closure=closure), 0)

    def test_first_step_without_permission(self):
        want, _ = self.train(torch.optim.AdamW)
        got, away = self.train(torch.optim.AdamW, 0, (5,), permitted=False)
        self.same(got, want)
        self.assertEqual((away, self.process.told["in_place"][0]["rung"]), (0, ""))

    def test_first_step_again_and_again(self):
        want, _ = self.train(torch.optim.AdamW)
        got, away = self.train(torch.optim.AdamW, 0, (2, 22, 25, 32))
        self.same(got, want)
        self.assertGreater(away, 0)
        with self.assertRaisesRegex(RuntimeError, "can't allocate memory"):  # thrice for one parameter
            self.train(torch.optim.AdamW, 0, (2, 22, 25, 28))

    def test_later_step(self):
        """States that are missing are made in a later step."""
        for foreach in (False, True):
            for words in ({"add": 4}, {"thaw": 4}):
                with self.subTest(foreach=foreach, **words):
                    self.assertGreater(self.rescued(torch.optim.AdamW, 4, (1,), foreach=foreach, **words), 0)
                    self.rescued(torch.optim.AdamW, 4, (2,), foreach=foreach, **words)

    def test_later_step_that_has_begun_goes_up(self):
        plain = torch.Tensor.addcmul_
        with self.assertRaisesRegex(RuntimeError, "can't allocate memory"):
            def falls(*args, **kwargs):
                if self.count == 40:
                    torch.empty(1 << 60, dtype=torch.uint8)
                self.count += 1
                return plain(*args, **kwargs)

            self.count, torch.Tensor.addcmul_ = 0, falls
            try:
                self.train(torch.optim.Adam, foreach=False)
            finally:
                torch.Tensor.addcmul_ = plain
        self.assertIn("in the midst of the arithmetic", self.process.told["in_place_refused"]["reason"])
        self.assertNotIn("in_place", self.process.told)

    def test_a_caller_that_handles_the_error(self):
        try:
            self.train(torch.optim.AdamW, 0, (2,))
        except RuntimeError as e:
            if "out of memory" in str(e):
                raise
        self.assertIn("the job handles the error itself", self.process.told["in_place_refused"]["reason"])

    def test_short_in_a_later_step(self):
        """Where the temporary tensors of all parameters would not fit beside what else is held by then."""
        want, _ = self.train(torch.optim.Adam, foreach=True)
        size = sum(4 * p.numel() for p in Net().parameters())
        asked = []

        def free(device):
            asked.append(1)
            return size - 1 if len(asked) > 4 else int(3.5 * size) if len(asked) == 1 else int(1.5 * size)

        part("room").free = free
        got, away = self.train(torch.optim.Adam, foreach=True)
        self.same(got, want)
        entry, = self.process.told["in_place"]
        self.assertEqual((entry["phase"], entry["step"], entry["requested_bytes"]), ("optimizer", entry["step"], 0))

    def test_only_as_much_as_has_to(self):
        """What fits beside all else stays on the device."""
        want, _ = self.train(torch.optim.AdamW)
        whole = 2 * sum(4 * p.numel() for p in Net().parameters())
        self.states.left_beside = lambda device, held, peak: whole // 2
        got, away = self.train(torch.optim.AdamW, 0, (2,))
        self.same(got, want)
        self.assertGreaterEqual(away, whole - whole // 2)
        self.assertLess(away, whole - whole // 4)

    def test_slots(self):
        """With memory for fewer buffers, or for none, the step is the same."""
        want, _ = self.train(torch.optim.AdamW)
        plain = self.visits.fits
        for most in (2, 1, 0):
            self.visits.fits = lambda n, *more, most=most: None if n > most else plain(n, *more)
            got, away = self.train(torch.optim.AdamW, 0, (2,))
            self.same(got, want)
            self.assertGreater(away, 0)

    def test_left_beside(self):
        room, meters = part("room"), part("meters")
        self.states.PART = 10

        class Meter:
            def read(self):
                return 300, 600

        meters.of = lambda device: Meter()
        room.allowed = lambda device: 1600
        beside = self.states.left_beside
        self.assertEqual(beside(torch.device("cpu"), 300, 600), 900)  # a 16th stays free
        self.assertIsNone(beside(torch.device("cpu"), 300, 0))
        self.assertEqual(beside(torch.device("cpu"), 1580, 1590), 0)
        room.allowed = lambda device: 0
        self.assertIsNone(beside(torch.device("cpu"), 300, 600))
