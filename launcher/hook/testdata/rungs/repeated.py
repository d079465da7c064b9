"""Passes that ran out of memory and were repeated in the same process, and those that may not be."""
import contextlib
import copy
import dis
import functools
import gc
import os
import pickle
import sys
import tempfile
import time
import traceback
import types
import unittest
import weakref
from unittest import mock

import harness
import torch
import torch.utils.checkpoint
from torch import nn

sys.path.append(os.path.join(harness.HERE, ".."))
import loops  # noqa: E402


class Guarded(unittest.TestCase):
    """Has the calls of a root guarded."""

    rungs = ("checkpointing",)

    @classmethod
    def setUpClass(cls):
        harness.rungs()
        cls.parts = {name: harness.part(name) for name in ("inplace", "forwards", "repeats", "process", "steps", "caught", "exclusions", "garbage", "wall")}
        gc.collect()
        gc.freeze()  # what is known by now is not gone through in each repeat

    @classmethod
    def tearDownClass(cls):
        gc.unfreeze()

    def setUp(self):
        self.parts["repeats"].entries.clear()
        self.parts["process"].told.pop("in_place_refused", None)
        self.parts["wall"].state.update(off=0)
        loops.expect()

    def guard(self, root, **orders):
        part = self.parts["inplace"]
        guard = part.Guard(root, dict({"rungs": self.rungs}, **orders), self.parts["exclusions"].barred(root))
        self.parts["forwards"].call(root, lambda module, plain, args, kwargs: guard.call(plain, module, args, kwargs))
        guard.install()
        self.addCleanup(guard.remove)
        return guard

    def repeats(self):
        return self.parts["repeats"].entries

    def refused(self):
        return self.parts["process"].told.get("in_place_refused")


class Loops(Guarded):
    """Losses, weights and random numbers are those of the undisturbed run, bit by bit."""

    def test_model_is_not_kept_alive(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        parameters = [weakref.ref(p) for p in model.parameters()]
        self.guard(model)
        model(torch.ones(2, 4)).sum().backward()
        del model
        gc.collect()
        self.assertEqual([p() for p in parameters if p() is not None], [])

    def outcome(self, name, *at):
        make, loop = loops.LOOPS[name]
        guards = []

        def guarded():
            net = make()
            guards.append(self.guard(net))
            return net

        loops.LOOPS["guarded"] = guarded, loop
        loops.expect(*at)
        try:
            found = loops.Outcome("guarded")
        finally:
            guards[0].remove()
        return found

    def look(self, name):
        loops.expect()
        want = loops.Outcome(name)
        calls = dict(loops.fail.count)
        # The backward pass of the last call comes first, and the others' outputs have no gradient then.
        first = calls["backward"] - 2 if name.endswith("several") else 2
        for where, at in (("forward", 2), ("forward", calls["forward"] - 3), ("backward", first), ("backward", calls["backward"] - 1)):
            self.setUp()
            got = self.outcome(name, (where, at))
            self.assertEqual((loops.fail.hit, len(self.repeats()), self.refused()), (1, 1, None), (where, at))
            self.assertEqual(self.repeats()[0]["phase"], where)
            self.assertTrue(got.same(want), "another outcome after a failure in %s %d" % (where, at))
        self.doCleanups()
        return calls

    def test_number_that_the_job_changes_after_the_first_call(self):
        """As Lightning's self.log does: it is put back for the repeated call, and stays as the job has set it."""

        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks, self.note = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3)), 1.0

            def forward(self, x):
                for block in self.blocks:
                    x = block(x) * self.note
                return x

        def fails_once(engine):
            def run(*args, **kwargs):
                guard.engine = engine
                guard.calls()[0].gradients[0] = torch.ones(2, 3)  # as if the output had got its gradient
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

            return run

        found = []
        for guarded in (False, True):
            torch.manual_seed(4)
            net = Counts()
            if guarded:
                guard = self.guard(net)
                guard.engine = fails_once(guard.engine)
            loss = net(torch.ones(2, 3)).sum()
            net.note = 2.0
            loss.backward()
            found.append((loss.item(), [p.grad.tolist() for p in net.parameters()], net.note))
        self.assertEqual((len(self.repeats()), self.refused()), (1, None))
        self.assertEqual(found[1], found[0])

    def test_late_batch_alone_is_recomputed(self):
        loops.expect()
        want = loops.Outcome("late")
        calls = dict(loops.fail.count)
        self.assertEqual(calls, {"forward": 600, "backward": 600})
        got = self.outcome("late", ("forward", 362))
        # Two blocks of the first try, three of the run that proves the repeat, and three that are recomputed.
        self.assertEqual(loops.fail.count, {"forward": 600 + 2 + 3 + 3, "backward": 600})
        self.assertTrue(got.same(want))
        self.assertEqual([(e["longest"], e["times"]) for e in self.repeats()], [(31, 1)])

    def test_repeats_are_folded(self):
        part = self.parts["repeats"]
        for i in range(40):
            part.done("forward", "split", 0.5, None, 10, 5, i)
        for _ in range(2):
            part.done("forward", "split", 0.25, None, 8, 4, 3)
        self.assertEqual(len(part.entries), 40)
        entry = part.entries[3]
        self.assertEqual((entry["times"], entry["seconds"], entry["elements"], entry["longest"]), (3, 1.0, 8, 4))

    def test_nothing_is_different_without_a_failure(self):
        for name in ("dropout", "batch norm", "several"):
            loops.expect()
            want = loops.Outcome(name)
            self.assertTrue(self.outcome(name).same(want), name)
            self.assertEqual(self.repeats(), [])

    def test_learned_sizes_are_armed(self):
        net = loops.Net()
        guard = self.guard(net)
        guard.arm({"rung": "checkpointing", "elements": 40, "longest": 31, "parts": 0})
        for shape, recomputed in (((2, 4), False), ((2, 31), True), ((10, 4), True), ((9, 4), False)):
            loops.expect()
            net(torch.zeros(shape, dtype=torch.long)).sum().backward()
            self.assertEqual(loops.fail.count["forward"], 6 if recomputed else 3, shape)


    def test_switch_of_the_model(self):
        """A model's own switch, as in transformers, is on in the repeated call."""
        loops.expect()
        want = loops.Outcome("plain")
        make, loop = loops.LOOPS["plain"]
        for at in (("forward", 2), ("forward", 11), ("backward", 2)):
            loops.LOOPS["plain"] = Switched, loop
            self.addCleanup(loops.LOOPS.__setitem__, "plain", (make, loop))
            self.setUp()
            self.assertTrue(self.outcome("plain", at).same(want), at)
            self.assertEqual([e["phase"] for e in self.repeats()], [at[0]], self.refused())


    def test_copies_of_a_model_whose_switch_was_turned(self):
        """They are those of the model as the job made it."""
        net = Switched()
        plain = pickle.dumps(net)
        self.guard(net)
        loops.expect(("forward", 2))
        net(loops.batches(1)[0]).sum().backward()
        self.assertEqual(len(self.repeats()), 1, self.refused())
        self.assertTrue(net.gradient_checkpointing)
        for copied in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
            self.assertIs(copied.gradient_checkpointing, False)
            self.assertIsNone(copied._gradient_checkpointing_func)
            self.assertEqual(list(copied.__dict__), list(pickle.loads(plain).__dict__))
        self.assertTrue(net.gradient_checkpointing)


class Switched(loops.Net):
    supports_gradient_checkpointing = True

    def __init__(self):
        super().__init__()
        self.gradient_checkpointing, self._gradient_checkpointing_func = False, None

    def _set_gradient_checkpointing(self, enable=True, gradient_checkpointing_func=None):
        self.gradient_checkpointing, self._gradient_checkpointing_func = enable, gradient_checkpointing_func

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = self._gradient_checkpointing_func(block, x) if self.gradient_checkpointing else block(x)
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


for name in loops.LOOPS:
    if name not in ("late", "guarded"):
        setattr(Loops, "test_" + name.replace(" ", "_"), lambda self, name=name: self.look(name))


class Cost(Guarded):
    def test_cost_while_nothing_fails(self):
        """It is some 50 microseconds; what is compared by the elements of tensors takes milliseconds."""
        guard, net, x = self.of_300_parameters()
        output = net(x).sum()
        output.backward()
        guard.engine, least = lambda *args, **kwargs: None, 1.0
        for _ in range(50):
            began = time.perf_counter()
            guard.call(lambda root, x: output, net, (x,), {})
            torch.autograd.backward(output)
            least = min(least, time.perf_counter() - began)
        print("a step costs %.0f microseconds" % (least * 1e6), file=sys.stderr)
        self.assertLess(least, 1e-3)

    def test_function_calls_while_nothing_fails(self):
        """Calls of Python functions take most of the time that does not follow from the number of parameters."""
        _, net, x = self.of_300_parameters()
        plain = nn.Sequential(*net)  # the same modules, not guarded
        for _ in range(5):
            net(x).sum().backward()
        step = lambda root: root(x).sum().backward()  # noqa: E731
        counts = [calls_in(lambda root=root: step(root)) for root in (net, plain)]
        self.assertLessEqual(counts[0] - counts[1], 46)

    def test_function_calls_of_a_recomputed_block(self):
        """Beside those that PyTorch's own function makes: once what a block changes is known, its numbers are not read by name."""
        _, net, x = self.of_300_parameters()
        plain = nn.Sequential(*[loops.Block() for _ in range(50)])
        checkpoint = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
        loops.expect(("forward", 60))
        run = lambda: net(x).sum().backward()  # noqa: E731
        for _ in range(5):
            run()
        self.assertEqual(len(self.repeats()), 1)
        counts = [calls_in(run), calls_in(lambda: functools.reduce(lambda y, block: checkpoint(block, y), plain, x.requires_grad_()).sum().backward())]
        print("a recomputed block costs %d calls of functions" % ((counts[0] - counts[1]) / 50), file=sys.stderr)
        self.assertLessEqual(counts[0] - counts[1], 50 * 180)

    def of_300_parameters(self):
        net = nn.Sequential(*[loops.Block() for _ in range(50)])
        guard = self.guard(net)
        self.assertEqual(len(guard.known.parameters), 300)
        return guard, net, torch.zeros(2, loops.WIDTH)


def calls_in(run):
    """Return how many functions of Python run calls."""
    found = []
    sys.setprofile(lambda frame, event, arg: found.append(frame.f_code.co_name) if event == "call" else None)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(found)


class Memory(Guarded):
    def test_all_objects_are_looked_at_where_a_repeat_runs_out_of_memory(self):
        """On a GPU: it takes longer than a step where many modules are loaded."""
        part, looked = self.parts["garbage"], []
        self.addCleanup(setattr, part, "collect", part.collect)
        part.collect = lambda: looked.append(True) or True
        for at, times in (([("forward", 2)], 0), ([("backward", 2)], 0), ([("forward", 2), ("forward", 3)], 1), ([("backward", 2), ("forward", 4)], 1)):
            self.setUp()
            looked.clear()
            net = loops.Net()
            self.guard(net).known.devices = ["cuda:0"]
            loops.expect(*at)
            net(torch.zeros(2, 4, dtype=torch.long)).sum().backward()
            self.assertEqual((len(looked), [e["rung"] for e in self.repeats()]), (times, ["checkpointing"]), (at, self.refused()))

    def test_old_graph_is_let_go(self):
        """Though the job keeps the loss, and a view of the output."""
        seen = loops.Fail()  # not restored before the repeat
        seen.gone = []

        class Held(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                value = x * 2
                ctx.save_for_backward(value)
                seen.gone.append(weakref.ref(value))
                return value.clone()

            @staticmethod
            def backward(ctx, gradient):
                loops.fail("backward")
                return gradient * 2

        class Root(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(loops.Block() for _ in range(2))

            def forward(self, x):
                if seen.gone:
                    gc.collect()
                    seen.gone.append(seen.gone[0]() is None)
                for block in self.blocks:
                    x = block(x)
                return Held.apply(x)

        net = Root()
        self.guard(net)
        loops.expect(("backward", 1))
        output = net(torch.ones(3, loops.WIDTH))
        kept = output, output.view(-1), output.view(-1).sum()
        loss = kept[2] / 2
        loss.backward()
        self.assertEqual(len(self.repeats()), 1, self.refused())
        self.assertIs(seen.gone[1], True)
        self.assertTrue(all(p.grad is not None for p in net.parameters()))


    def test_activations_are_let_go_where_a_norm_fails(self):
        """The forward pass fails while BatchNorm computes its statistics."""
        seen = loops.Fail()  # not restored before the repeat
        seen.made, seen.failed = [], False

        class Root(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks, self.norm = nn.ModuleList(loops.Block() for _ in range(2)), nn.BatchNorm1d(loops.WIDTH)

            def forward(self, x):
                if seen.made:
                    gc.collect()
                    seen.made.append([each() for each in seen.made if callable(each)])
                for block in self.blocks:
                    x = block(x)
                seen.made.append(weakref.ref(x))
                return self.norm(x)

        batch_norm = nn.functional.batch_norm

        def failing(input, *args, **kwargs):
            if not seen.failed:
                seen.failed = True
                torch.empty(1 << 60, dtype=torch.uint8)
            return batch_norm(input, *args, **kwargs)

        failing.__code__ = failing.__code__.replace(co_name="batch_norm")
        net = Root()
        self.guard(net)
        nn.functional.batch_norm = failing
        self.addCleanup(setattr, nn.functional, "batch_norm", batch_norm)
        net(torch.ones(3, loops.WIDTH)).sum().backward()
        self.assertEqual(len(self.repeats()), 1, self.refused())
        self.assertEqual(seen.made[1], [None])
        self.assertEqual(net.norm.num_batches_tracked.item(), 1)


class Refused(Guarded):
    """The job's own error goes up as it was."""

    def fails(self, run, reason, *at, net=None, why=RuntimeError):
        net = net or loops.Net()
        self.guard(net)
        loops.expect(*at)
        error = None
        try:
            run(net)
        except why as e:
            error = e
        self.assertIn("can't allocate memory", str(error))
        self.assertIsNone(error.__context__)
        self.assertEqual(self.repeats(), [])
        if reason:
            self.assertIn(reason, self.refused()["reason"])
        return error

    x = torch.zeros(2, 4, dtype=torch.long)

    def backward(self, net, loss=lambda out: out.sum(), **kwargs):
        loss(net(self.x)).backward(**kwargs)

    def test_parameter_reached_otherwise(self):
        self.fails(lambda net: self.backward(net, lambda out: out.sum() + net.head.weight.square().sum()), "otherwise than through the model", ("backward", 2))

    def test_second_model_in_the_loss(self):
        other = nn.Linear(loops.WORDS, 1)
        self.fails(lambda net: self.backward(net, lambda out: out.sum() + other(torch.ones(1, loops.WORDS)).sum()), "otherwise than through the model", ("backward", 2))

    def test_input_with_a_gradient(self):
        class Float(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(loops.Block() for _ in range(2))

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x

        net, before = Float(), nn.Linear(loops.WIDTH, loops.WIDTH)
        self.fails(lambda net: net(before(torch.ones(2, loops.WIDTH))).sum().backward(), "an input of the model has a gradient", ("backward", 1), net=net)

    def test_output_without_its_gradient(self):
        self.fails(lambda net: self.backward(net, lambda out: loops.Falls.apply(out).sum()), "the backward pass of the loss, before an output of the model had its gradient", ("backward", 1))

    def test_call_whose_output_has_no_gradient_yet(self):
        self.fails(loops.several, "the backward pass of the loss or of a later call of the model, before", ("backward", 2))

    def test_tensor_that_is_no_parameter(self):
        net = loops.Net()
        prompt = torch.zeros(loops.WIDTH, requires_grad=True)
        net.blocks[0].norm.register_buffer("unused", torch.zeros(1))
        net.blocks[0].norm.prompt = [prompt]
        net.blocks[0].norm.__class__ = type("Prompted", (nn.LayerNorm,), {"forward": lambda self, x: nn.LayerNorm.forward(self, x) + self.prompt[0]})
        self.fails(self.backward, "no parameter of it", ("backward", 2), net=net)

    def test_input_that_was_written_to(self):
        class Writes(loops.Net):
            def forward(self, x):
                x.add_(1)
                return super().forward(x)

        self.fails(self.backward, "an input was written to", ("forward", 2), net=Writes())
        self.x.zero_()

    def test_parameter_that_was_written_to(self):
        def run(net):
            loss = net(self.x).sum()
            with torch.no_grad():
                net.norm_free.add_(1)
            loss.backward()

        net = loops.Net()
        net.norm_free = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.fails(run, "written to", ("backward", 2), net=net)

    def test_remedies_that_did_not_suffice_are_reported(self):
        for at in ((("forward", 2), ("forward", 3)), (("backward", 2), ("forward", 4))):
            self.setUp()
            self.fails(self.backward, "can't allocate memory", *at)
            self.assertEqual(self.refused()["rungs"], ["checkpointing"], at)
        self.setUp()
        self.fails(lambda net: self.backward(net, retain_graph=True), "keeps the graph", ("backward", 2))
        self.assertEqual(self.refused()["rungs"], [])

    def test_graph_that_is_kept(self):
        self.fails(lambda net: self.backward(net, retain_graph=True), "keeps the graph", ("backward", 2))
        self.fails(lambda net: self.backward(net, inputs=list(net.parameters())), "for some tensors only", ("backward", 2))

    @unittest.skipIf(torch.__version__ < "2", "it warns")
    def test_graph_of_gradients(self):
        self.fails(lambda net: self.backward(net, create_graph=True), "keeps the graph", ("backward", 2))

    def test_autograd_grad(self):
        self.fails(lambda net: torch.autograd.grad(net(self.x).sum(), list(net.parameters())), "", ("backward", 2))

    def test_anomalies_are_looked_for(self):
        def run(net):
            with torch.autograd.set_detect_anomaly(True):
                self.backward(net)

        self.fails(run, "anomalies", ("forward", 2))

    def test_main_gradients(self):
        net = loops.Net()
        net.head.weight.main_grad = torch.zeros(1)
        self.fails(self.backward, "main_grad", ("backward", 2), net=net)

    def test_sparse_gradients(self):
        net = loops.Net()
        net.embed = nn.Embedding(loops.WORDS, loops.WIDTH, sparse=True)
        self.fails(lambda net: [self.backward(net) for _ in range(2)], "gradients are sparse", ("backward", 5), net=net)

    def test_many_outputs(self):
        class Many(loops.Net):
            def forward(self, x):
                x = super().forward(x)
                return [x + i for i in range(65)]

        self.fails(lambda net: self.backward(net, lambda out: sum(out).sum()), "more than 64 outputs", ("backward", 2), net=Many())

    def test_argument_that_is_an_iterator(self):
        class Drawing(loops.Net):
            def forward(self, rows):
                return super().forward(next(rows))

        self.fails(lambda net: net(iter([self.x] * 2)), "an argument is an iterator", ("forward", 2), net=Drawing())

    def test_reentrant_checkpointing(self):
        class Reentrant(loops.Net):
            def forward(self, x):
                x = self.blocks[0](self.embed(x))
                return self.head(self.blocks[2](torch.utils.checkpoint.checkpoint(self.blocks[1], x, use_reentrant=True)))

        self.fails(self.backward, "reentrant checkpointing", ("backward", 1), net=Reentrant())
        self.fails(self.backward, "runs another one in it", ("backward", 3), net=Reentrant())

    def test_backward_in_a_backward(self):
        class Nested(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                with torch.enable_grad():
                    torch.ones(1, requires_grad=True).sum().backward()
                return gradient * 2

        class Net(loops.Net):
            def forward(self, x):
                return Nested.apply(super().forward(x))

        self.fails(self.backward, "runs another one in it", ("backward", 3), net=Net())

    def test_modules_that_were_switched(self):
        def run(net):
            loss = net(self.x).sum()
            net.blocks[1].eval()
            loss.backward()

        self.fails(run, "switched between training and evaluation", ("backward", 2))

    def test_another_process(self):
        def run(net):
            guard.pid = 0  # as after a fork
            self.backward(net)

        net, plain = loops.Net(), self.guard
        guard = plain(net)
        self.guard = lambda net: None
        self.fails(run, "", ("forward", 2), net=net)
        self.assertIsNone(self.refused())

    def test_scripted_module(self):
        net = loops.Net()
        net.norm = torch.jit.script(nn.LayerNorm(4))
        self.fails(self.backward, "TorchScript", ("forward", 2), net=net)

    def test_compiled_module(self):
        net = loops.Net()
        net.blocks[0].__dict__["_compiled_call_impl"] = None
        net.blocks[0].forward = net.blocks[0].forward
        net.blocks[0].forward.__func__  # a plain method
        wrapped = lambda x: loops.Block.forward(net.blocks[0], x)  # noqa: E731
        wrapped._torchdynamo_orig_callable = loops.Block.forward
        net.blocks[0].forward = wrapped
        self.fails(self.backward, "compiled", ("forward", 2), net=net)

    def test_hook_on_an_output(self):
        def run(net):
            out = net(self.x)
            out.register_hook(lambda gradient: gradient * 2)
            out.sum().backward()

        self.fails(run, "hook on a tensor", ("backward", 2))

    def test_hook_on_a_tensor_inside(self):
        class Hooks(loops.Net):
            def forward(self, x):
                x = self.blocks[0](self.embed(x))
                x.retain_grad()
                return self.head(self.blocks[1](x))

        self.fails(self.backward, "hook on a tensor", ("backward", 1), net=Hooks())

    def test_hook_on_a_module(self):
        net = loops.Net()
        net.blocks[1].register_forward_hook(lambda module, args, output: None)
        self.fails(self.backward, "a hook on Block", ("forward", 3), net=net)

    def test_hook_on_all_modules(self):
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
        self.addCleanup(handle.remove)
        self.fails(self.backward, "a hook on all modules", ("forward", 3))

    def test_backward_pass_inside_the_forward(self):
        class Inner(loops.Net):
            def forward(self, x):
                (self.norm_free * 2).sum().backward()
                return super().forward(x)

        net = Inner()
        net.norm_free = nn.Parameter(torch.zeros(1))
        self.fails(self.backward, "runs a backward pass", ("forward", 2), net=net)
        self.assertEqual(net.norm_free.grad.item(), 2)

    def test_collective_in_the_forward(self):
        import torch.distributed as dist

        class Together(loops.Net):
            def forward(self, x):
                dist.all_reduce(torch.ones(1))
                return super().forward(x)

        with world():
            self.fails(self.backward, "communicates", ("forward", 2), net=Together())
            self.fails(self.backward, "communicates", ("backward", 2), net=Together())

    def test_models_that_are_spread_over_ranks(self):
        for name in ("FullyShardedDataParallel", "SyncBatchNorm", "MoE", "PipelineModule", "ColumnParallelLinear"):
            net = loops.Net()
            net.norm = type(name, (nn.Identity,), {})()
            self.assertNotEqual(self.parts["exclusions"].barred(net), "", name)
        net = loops.Net()
        net.head.weight.ds_id = 1
        self.assertIn("ZeRO", self.parts["exclusions"].barred(net))
        self.assertEqual(self.parts["exclusions"].barred(loops.Net()), "")

    def test_backward_pass_of_deepspeed(self):
        def run(net):
            guard.only_forward = True
            self.backward(net)

        plain, guard = self.guard, None

        def kept(net):
            nonlocal guard
            guard = plain(net)

        self.guard = kept
        self.fails(run, "DeepSpeed", ("backward", 2))

    def test_block_that_computes_something_else_when_it_is_recomputed(self):
        """The step is not taken: the job's error goes up in the backward pass."""
        class Secret(loops.Block):
            def forward(self, x):
                return super().forward(x) * secret()

        seen = loops.Fail()  # of a library, and so not looked at
        seen.runs = []

        def secret():
            seen.runs.append(True)
            return float(len(seen.runs) // 9)  # another from the third run of the whole forward on

        net = loops.Net()
        net.blocks = nn.ModuleList(Secret() for _ in range(3))
        self.guard(net)
        loops.expect(("forward", 2))
        loss = net(self.x).sum()
        self.assertEqual(len(self.repeats()), 1)
        with self.assertRaisesRegex(RuntimeError, "can't allocate memory"):
            loss.backward()
        self.assertIn("something else", self.refused()["reason"])

    def test_module_that_is_guarded(self):
        part, named = self.parts["inplace"], lambda name, base=nn.Module: type(name, (base,), {})

        class Around(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

        net = loops.Net()
        self.assertIs(part.guarded_module(net), net)
        self.assertIs(part.guarded_module(named("DistributedDataParallel", Around)(net)), net)
        step = named("LightningModule")()
        step.small, step.model = nn.Linear(1, 1), net
        self.assertIs(part.guarded_module(step), step)
        self.assertIs(part.guarded_module(named("DistributedDataParallel", Around)(step)), net)

    def test_second_failure_in_one_step(self):
        error = self.fails(self.backward, "can't allocate memory", ("forward", 2), ("forward", 3))
        self.assertEqual(traceback.extract_tb(error.__traceback__)[-1].name, "fail")
        self.assertIsNone(error.__cause__)
        self.fails(self.backward, "can't allocate memory", ("backward", 2), ("forward", 5))

    def test_interrupt_of_a_repeat_is_no_failure(self):
        class Interrupted(loops.Net):
            def forward(self, x):
                if loops.fail.hit:
                    raise KeyboardInterrupt
                return super().forward(x)

        for at in (("forward", 2), ("backward", 2)):
            net = Interrupted()
            self.guard(net)
            loops.expect(at)
            with self.assertRaises(KeyboardInterrupt):
                self.backward(net)
            self.assertIsNone(self.refused())

    def test_model_without_a_remedy(self):
        net = nn.Sequential(nn.Embedding(5, 3), type("Fails", (nn.Module,), {"forward": lambda self, x: loops.Falls.apply(x)})())
        self.fails(self.backward, "no repeated blocks", ("forward", 1), net=net)

    def test_error_is_as_it_was(self):
        """Nothing was cleared where the step was not repeated."""
        net = loops.Net()
        net.blocks[1].register_forward_hook(lambda module, args, output: None)
        error = self.fails(self.backward, "a hook", ("forward", 3), net=net)
        place, names = error.__traceback__, []
        while place.tb_next is not None:
            place = place.tb_next
            names.append(place.tb_frame.f_code.co_name)
        self.assertEqual(place.tb_frame.f_locals["where"], "forward")
        self.assertIn("x", [name for frame in frames(error) if frame.f_code.co_filename.endswith("loops.py") for name in frame.f_locals])


def frames(error):
    place, found = error.__traceback__, []
    while place is not None:
        found.append(place.tb_frame)
        place = place.tb_next
    return found


@contextlib.contextmanager
def world():
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Caught(Guarded):
    """A job that handles the error itself sees it."""

    def handles(self, run):
        net = loops.Net()
        self.guard(net)
        loops.expect(("forward", 2))
        seen = run(net, torch.zeros(2, 4, dtype=torch.long))
        self.assertEqual(self.repeats(), [])
        self.assertIn("the job handles the error itself", self.refused()["reason"])
        return seen

    def test_text_of_the_message(self):
        def run(net, x):
            try:
                net(x)
            except RuntimeError as e:
                if "out of memory" in str(e) or "can't allocate" in str(e):
                    return [f for f in frames(e) if f.f_code.co_name == "fail"][0].f_locals["where"]
                raise

        self.assertEqual(self.handles(run), "forward")

    def test_type_of_the_error(self):
        def run(net, x):
            try:
                return net(x)
            except (torch.cuda.OutOfMemoryError, RuntimeError):
                return "seen"

        self.assertEqual(self.handles(run), "seen")

    def test_suppressed(self):
        class OutOfMemory(RuntimeError):
            pass

        def run(net, x):
            with contextlib.suppress(OutOfMemory, RuntimeError):
                net(x)

        self.handles(run)

    def test_batch_size_that_is_looked_for(self):
        def run(net, x):
            sizes = []

            @find_executable_batch_size
            def train(batch_size):
                sizes.append(batch_size)
                net(x[:batch_size]).sum().backward()

            train()
            return sizes

        self.assertEqual(self.handles(run), [2, 1])

    def test_other_handlers_do_not_count(self):
        net = loops.Net()
        self.guard(net)
        loops.expect(("forward", 2))
        try:
            net(torch.zeros(2, 4, dtype=torch.long))
        except Exception:
            raise
        self.assertEqual(len(self.repeats()), 1)


    def test_only_functions_of_callers_are_parsed(self):
        """They give the answers that the whole file gives."""
        source = HANDLERS + "\ndef last(net):\n    return [net() for _ in (1,)]\n" + "unused = 1\n" * 5000
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(source)
            file.flush()
            caught = self.parts["caught"]
            whole, handled = caught.handlers(source.splitlines(True)), set()
            with mock.patch.object(caught.ast, "parse", wraps=caught.ast.parse) as parse:
                for code in functions_in(compile(source, file.name, "exec")):
                    found = caught.in_function(code)
                    for line in {line for _, line in dis.findlinestarts(code) if line}:
                        answers = [[one for one in each if one[0] <= line <= one[1]] for each in (whole, found)]
                        self.assertEqual(*answers, msg="%s, line %d" % (code.co_name, line))
                        handled |= {code.co_name for one in answers[1] if caught.NAMED.search(one[2])}
            self.assertEqual(handled, {"plain", "nested", "inner", "method", "later", "suppressed"})
            self.assertLess(max(len(call.args[0]) for call in parse.call_args_list), 400)


HANDLERS = '''
import contextlib

def plain(net):
    text = """
at the first column
    """
    try:
        net(text)
    except MemoryError as e:
        print(f"""
{e}""")

def other(net):
    try:
        net()
    except ValueError:
        pass

@contextlib.contextmanager
def nested(net):
\tdef inner():
\t\ttry:
\t\t\tnet()
\t\texcept RuntimeError:  # out of memory
\t\t\tpass
\ttry:
\t\tyield inner
\texcept (MemoryError,
\t\tRuntimeError):
\t\tnet(1,
2)

class Kind:
    def method(self, net):
        try:
            return sorted([1], key=net)
        except Exception as e:
            if "out of memory" not in str(e):
                raise

    async def later(self, net):
        try:
            await net()
        finally:
            try:
                net()
            except MemoryError:
                pass

    @property
    def suppressed(self):
        with contextlib.suppress(MemoryError):
            return 1
'''


def functions_in(code):
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            if each.co_name not in ("Kind", "<listcomp>"):
                yield each
            yield from functions_in(each)


def find_executable_batch_size(function):
    """As Accelerate's."""
    def should_reduce_batch_size(error):
        return "can't allocate memory" in str(error)

    def decorated():
        size = 2
        while True:
            try:
                return function(size)
            except Exception as e:
                if not should_reduce_batch_size(e):
                    raise
                size //= 2

    return decorated
