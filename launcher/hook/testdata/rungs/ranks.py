"""Two ranks over gloo: what wraps a model for them goes on working, and training is the same."""
import json
import os
import sys
import tempfile
import traceback
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models
from harness import AtFirstCall, Training, compare, loss_of

FULL = {"activation_checkpointing": "full"}


class Runs:
    """Counts runs. What an object of a library counts is not looked at."""

    __module__, n = "torch.testing", 0


class Ranks(unittest.TestCase):
    """Each case is a function of Worker, which both ranks run. They run once for all cases."""

    together = True

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            ends = [os.waitpid(pid, 0)[1] for pid in [forked(rank, folder) for rank in range(2)]]
            texts = [[open(os.path.join(folder, "%s%d" % (name, rank)), errors="replace").read() for name in ("out", "err")] for rank in range(2)]
        cls.told = [json.loads(out.splitlines()[-1]) if end == 0 else {} for end, (out, _) in zip(ends, texts)]
        cls.words = "".join(err for _, err in texts)[-8000:]


def forked(rank, folder):
    """Start a rank in a fork, which has imported PyTorch already."""
    pid = os.fork()
    if pid == 0:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(os.path.join(folder, "%s%d" % (name, rank)), os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        code = 1
        try:
            main(rank, folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def case(name):
    def test(self):
        for rank, told in enumerate(self.told):
            outcome = told.get(name, self.words)
            if outcome.startswith("skip"):
                self.skipTest(outcome)
            self.assertFalse(outcome, "rank %d: %s" % (rank, outcome))

    return test


class Sometimes(nn.Module):
    """A model with a part that only some steps use."""

    def __init__(self):
        super().__init__()
        self.gpt, self.other, self.step = models.GPT(dropout=0.1), nn.Linear(models.WIDTH, models.WORDS), 0

    def forward(self, idx):
        self.step += 1
        x = self.gpt.transformer.wte(idx)
        for block in self.gpt.transformer.h:
            x = block(x)
        return (self.other if self.step % 2 else self.gpt.head)(x)


def counting(reduced):
    """Return a hook for the communication of gradients that notes how much was sent."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def hook(_, bucket):
        reduced.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    hook.__annotations__ = dict(allreduce_hook.__annotations__, bucket=dist.GradBucket)
    return hook


class Worker(unittest.TestCase):
    def equal(self, make, batch, less=0.75, **options):
        rank = dist.get_rank()
        def mine(step):
            return batch(2 * step + rank)
        more = {key: options.pop(key) for key in ("accumulate",) if key in options}
        def wrap(model):
            return DistributedDataParallel(model, **options)
        untouched = Training(make, mine, wrap=wrap, **more)
        turned = Training(make, mine, wrap=wrap, turn=FULL, **more)
        self.assertEqual(turned.result, {"applied": {"activation_checkpointing": ["none", "full"]}, "refused": {}, "failed": {}})
        compare(self, turned, untouched)
        self.assertLess(turned.saved[0], less * untouched.saved[0])

    def plain(self):
        self.equal(lambda: models.GPT(dropout=0.1), models.words)

    def static_graph(self):
        self.equal(lambda: models.GPT(dropout=0.1), models.words, static_graph=True)

    def unused_parameters(self):
        self.equal(Sometimes, models.words, find_unused_parameters=True)

    def batch_norm(self):
        self.equal(models.ConvNet, models.pixels)

    def accumulation(self):
        self.equal(lambda: models.GPT(dropout=0.1), models.words, accumulate=2)

    def parts_of_the_batch(self):
        """A parameter's gradient is reduced once, and one that nothing uses stays without."""
        import contextlib

        import split

        class Partly(models.GPT):
            def __init__(self):
                super().__init__(tied=True)
                self.other = nn.Linear(3, 3)

        rank = dist.get_rank()
        for make, options in (
            (models.GPT, {}), (models.GPT, {"gradient_as_bucket_view": True}), (Partly, {"find_unused_parameters": True}), (models.GPT, {"static_graph": True}),
        ):
            found = []
            for parts in (0, 4):
                torch.manual_seed(1)
                model = DistributedDataParallel(make().double(), bucket_cap_mb=0.02, **options)
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
                reduced = []
                model.register_comm_hook(None, counting(reduced))
                if parts:
                    result = split.turned(model, (models.words(rank),), {}, parts)
                    self.assertEqual(result, {"applied": {"forward_parts": [1, 4]}, "refused": {}, "failed": {}})
                for step in range(3):
                    for micro in range(2):
                        alone = micro == 0 and "static_graph" not in options
                        with model.no_sync() if alone else contextlib.nullcontext():
                            loss_of(model(models.words(8 * step + 2 * micro + rank)), step).backward()
                    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                found.append((gradients, list(model.parameters()), sum(reduced)))
            for one, other in zip(*[gradients + weights for gradients, weights, _ in found]):
                self.assertEqual(one is None, other is None)
                self.assertTrue(one is None or torch.allclose(one, other, rtol=1e-10, atol=1e-14), options)
            self.assertEqual(*[reduced for _, _, reduced in found])

    def second_run_differs(self):
        """The backward pass fails in each rank before any gradient is reduced."""
        runs = Runs()

        class ByRun(models.Block):
            def forward(self, x):
                runs.n += 1
                return super().forward(x) * runs.n

        model = DistributedDataParallel(models.GPT(block=ByRun))
        AtFirstCall(model, FULL)
        loss = loss_of(model(models.words(dist.get_rank())), 0)
        with self.assertRaisesRegex(RuntimeError, "gpurun checkpoints no block"):
            loss.backward()
        blocks = model.module.transformer.h
        self.assertTrue(all(p.grad is None or not p.grad.any() for block in blocks for p in block.parameters()))

    def shards(self, wrap, gather):
        """Trains untouched and turned under FSDP, and compares losses and whole weights."""
        rank, results = dist.get_rank(), []
        for turn in (None, FULL):
            torch.manual_seed(0)
            model = wrap(models.GPT(dropout=0.1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            first = AtFirstCall(model, turn) if turn else None
            losses, saved = [], []
            for step in range(3):
                torch.manual_seed(10 * step + rank)
                with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
                    loss = loss_of(model(models.words(2 * step + rank)), step)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            if first:
                self.assertEqual(first.result, {"applied": {"activation_checkpointing": ["none", "full"]}, "refused": {}, "failed": {}})
            results.append((losses, gather(model), sum(saved)))
        (a, x, much), (b, y, less) = results
        self.assertEqual([float(v) for v in a], [float(v) for v in b])
        self.assertEqual(list(x), list(y))
        for name in x:
            self.assertTrue(torch.equal(x[name], y[name]), name)
        self.assertLess(less, 0.75 * much)

    def fully_sharded(self):
        if torch.__version__.startswith(("1.", "2.0", "2.1.")):
            return "skip: this PyTorch shards on GPUs only"
        import functools

        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={models.Block})

        def gather(model):
            with FullyShardedDataParallel.summon_full_params(model):
                return {name: p.detach().clone() for name, p in model.named_parameters()}

        for original in (True, False):
            options = {"auto_wrap_policy": policy, "use_orig_params": original, "device_id": torch.device("cpu")}
            self.shards(lambda model: FullyShardedDataParallel(model, **options), gather)

    def fully_shard(self):
        try:
            from torch.distributed.fsdp import fully_shard
        except (ImportError, ValueError):  # PyTorch 1.13 under Python 3.11
            return "skip: this PyTorch has no fully_shard"
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2,))

        def wrap(model):
            for block in model.transformer.h:
                fully_shard(block, mesh=mesh)
            return fully_shard(model, mesh=mesh)

        self.shards(wrap, lambda model: {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()})


NAMES = ("plain", "static_graph", "unused_parameters", "batch_norm", "accumulation", "parts_of_the_batch", "second_run_differs", "fully_sharded", "fully_shard")
for name in NAMES:
    setattr(Ranks, "test_" + name, case(name))


def main(rank, folder):
    """Runs every case in this rank and prints {case: what went wrong}."""
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank, world_size=2)
    told = {}
    for name in NAMES:
        try:
            told[name] = getattr(Worker(name), name)() or ""
        except Exception:
            told[name] = traceback.format_exc()[-3000:]
    print(json.dumps(told))
    sys.stdout.flush()
    dist.destroy_process_group()
