"""What a forward prints and writes, and what happens around a training loop."""
import atexit
import collections
import copy
import io
import json
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import warnings

import torch
import torch.nn.functional as F
from counters import scaled
from harness import Habit, Net, batches, habit, net, optimizer, step, train
from torch import nn


@habit(prints=True)
class Prints(Habit):
    def change(self, x):
        print("shape", tuple(x.shape), flush=True)
        return x


@habit(prints=True)
class Logs(Habit):
    def setup(self):
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(message)s", force=True)

    def change(self, x):
        logging.getLogger("job").info("forward of %d", len(x))
        return x


@habit(prints=True)
class Warns(Habit):
    def change(self, x):
        warnings.warn("the input is small")
        return x


@habit(prints=True)
class ProgressBar(Habit):
    """As tqdm does: a bar in one line, which counts."""

    def setup(self):
        self.n = 0

    def change(self, x):
        self.n += 1
        sys.stderr.write("\r%d/5" % self.n)
        return scaled(x, self.n)


class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record.getMessage())


@habit
class HandlerThatKeepsRecords(Habit):
    def setup(self):
        self.handler = Handler()
        logging.getLogger("kept").addHandler(self.handler)
        logging.getLogger("kept").propagate = False

    def change(self, x):
        logging.getLogger("kept").warning("forward")
        return scaled(x, len(self.handler.records))


@habit
class FileInTheForward(Habit):
    def change(self, x):
        with open("features.txt", "a") as file:
            file.write(float(x.detach().sum()).hex() + "\n")
        return x


LOG = None


@habit
class OpenFile(Habit):
    def change(self, x):
        global LOG
        LOG = LOG or open("calls.txt", "a")
        LOG.write("call\n")
        LOG.flush()
        return x


@habit
class FileThatIsRead(Habit):
    """A counter that is kept in a file."""

    def change(self, x):
        n = 0
        if os.path.exists("count.json"):
            with open("count.json") as file:
                n = json.load(file)
        with open("count.json", "w") as file:
            json.dump(n + 1, file)
        return scaled(x, n)


DATA = None


@habit
class StreamOfNumbers(Habit):
    """Reads on in a file."""

    def change(self, x):
        global DATA
        if DATA is None:
            with open("stream.txt", "w") as file:
                file.write("".join("%d\n" % (i % 5) for i in range(500)))
            DATA = open("stream.txt")
        return scaled(x, int(DATA.readline()))


@habit
class BufferInMemory(Habit):
    def setup(self):
        self.buffer = io.StringIO()

    def change(self, x):
        self.buffer.write("x")
        return scaled(x, self.buffer.tell())


WRITTEN, QUEUE = [], queue.Queue()


def writer():
    while True:
        item = QUEUE.get()
        if item is None:
            return
        WRITTEN.append(item)


@habit
class QueueToAThread(Habit):
    """As TensorBoard's writer does."""

    thread = None

    def change(self, x):
        if QueueToAThread.thread is None:
            QueueToAThread.thread = threading.Thread(target=writer, daemon=True)
            QueueToAThread.thread.start()
        QUEUE.put(float(x.detach().sum()))
        return x

    def leaves():
        QUEUE.put(None)
        QueueToAThread.thread.join()
        return WRITTEN


TAPE = queue.Queue()


@habit
class QueueOfFeatures(Habit):
    def change(self, x):
        TAPE.put(x.detach().mean(0))
        if TAPE.qsize() > 2:
            x = x + TAPE.get()
        return x

    def leaves():
        return [TAPE.get() for _ in range(TAPE.qsize())]


@habit
def evaluation_between_steps():
    model, sums = Net(), []
    steps = optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        model.eval()
        with torch.no_grad():
            sums.append(float(model(x).sum()))
        model.train()
        step(loss)
    return model, sums


@habit
class EvaluationThatCounts(Habit):
    def setup(self):
        self.calls = collections.Counter()

    def change(self, x):
        self.calls[self.training] += 1
        return scaled(x, self.calls[True])


@habit
def average_of_the_weights():
    model = Net()
    average, steps = copy.deepcopy(model), optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.lerp_(p, 0.1)
            average.eval()
            print("average", float(average(x).sum()).hex())
        step(loss)
    return model, average


@habit
def copies_in_mid_run():
    model, texts = Net(), []
    steps = optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        other, third = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        other.load_state_dict(model.state_dict())
        texts.append(sorted(vars(other)) == sorted(vars(third)) == sorted(vars(model)))
        with torch.no_grad():
            print("copies", float(other(x).sum()).hex(), float(third(x).sum()).hex(), sorted(vars(model)))
        step(loss)
    return model, texts


@habit
def checkpoints_to_files():
    model = Net()
    steps = optimizer(model)
    for i, (x, y) in enumerate(batches()):
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        with open("checkpoint-%d" % i, "w") as file:
            json.dump({"model": {k: v.tolist() for k, v in model.state_dict().items()}, "optimizer": str(steps.state_dict())}, file)
        if i == 2:
            with open("checkpoint-1") as file:
                model.load_state_dict({k: torch.tensor(v) for k, v in json.load(file)["model"].items()})
        step(loss)
    return model


@habit
def signals():
    model, seen = Net(), []
    steps = optimizer(model)
    signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    for x, y in batches():
        os.kill(os.getpid(), signal.SIGUSR2)
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model, seen


@habit(prints=True)
def at_exit():
    counts = collections.Counter()
    atexit.register(lambda: print("at exit", sorted(counts.items()), flush=True))

    def loss_of(output, y):
        counts["loss"] += 1
        return F.cross_entropy(output, y)

    return train(Net(), loss_of=loss_of)


@habit
def functions_of_torch_are_as_they_were():
    """What a job can read of PyTorch and of Python while it trains."""
    facts = []

    def loss_of(output, y):
        facts.append([sys.excepthook is sys.__excepthook__, sorted(k for k in os.environ if k.startswith("GPURUN_PROBE")), os.environ.get("PYTHONPATH"),
                      len(nn.modules.module._global_forward_hooks), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()])
        return F.cross_entropy(output, y)

    model = train(Net(), loss_of=loss_of)
    print(facts[0], sorted(k for k in vars(model) if k not in vars(nn.Module())), [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()])
    return model


class Called:
    def __init__(self):
        self.model = net(Habit)
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return scaled(self.model(x), self.calls)


@habit
def wrapper_that_is_no_module():
    outer = Called()
    steps = optimizer(outer.model)
    for x, y in batches():
        loss = F.cross_entropy(outer(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return outer.model, outer.calls


@habit
def threads_that_draw():
    """A thread beside the loop has a generator that is none of the loop's."""
    out, go, done = [], threading.Semaphore(0), threading.Semaphore(0)
    own = torch.Generator().manual_seed(8)

    def run():
        for _ in range(5):
            go.acquire()
            out.append(float(torch.rand((), generator=own)))
            done.release()

    threading.Thread(target=run, daemon=True).start()

    def loss_of(output, y):
        go.release()
        done.acquire()
        return F.cross_entropy(output, y) * (1 + out[-1])

    return train(Net(), loss_of=loss_of), out
