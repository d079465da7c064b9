"""Training loops, losses, optimizers and gradients."""
import functools
import itertools
import math
import random

import torch
import torch.nn.functional as F
from counters import Counter
from harness import CLASSES, WIDTH, Net, batches, habit, optimizer, step, train
from torch import nn


class LossWithACounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.average = itertools.count(1), None

    def forward(self, output, y):
        loss = F.cross_entropy(output, y) * (1 + 0.05 * next(self.calls))
        self.average = float(loss) if self.average is None else 0.9 * self.average + 0.1 * float(loss)
        return loss / (1 + self.average)


@habit
def loss_with_a_counter():
    loss_of = LossWithACounter()
    return train(Net(), loss_of=loss_of), loss_of


@functools.lru_cache(None)
def class_weights(n):
    return torch.rand(n)


@habit
def loss_with_a_cache():
    return train(Net(), loss_of=lambda output, y: F.cross_entropy(output, y, weight=class_weights(CLASSES)))


@habit
def loss_with_a_generator():
    def weights():
        while True:
            yield 1 + random.random()

    each = weights()
    return train(Net(), loss_of=lambda output, y: F.cross_entropy(output, y) * next(each))


@habit
def loss_with_its_parameters():
    """Centres of classes, which the loss moves."""
    centers = torch.zeros(CLASSES, CLASSES)

    def loss_of(output, y):
        centers[y] = centers[y] * 0.9 + output.detach() * 0.1
        return F.cross_entropy(output, y) + 0.1 * F.mse_loss(output, centers[y].clone())

    return train(Net(), loss_of=loss_of), centers


@habit
def loss_with_mixup():
    def loss_of(output, y):
        share, other = random.betavariate(1, 1), torch.randperm(len(y))
        return share * F.cross_entropy(output, y) + (1 - share) * F.cross_entropy(output, y[other])

    return train(Net(), loss_of=loss_of)


@habit
def hardest_samples():
    return train(Net(), loss_of=lambda output, y: F.cross_entropy(output, y, reduction="none").topk(2 if len(y) > 1 else 1).values.mean())


@habit
def sums():
    return train(Net(), loss_of=functools.partial(F.cross_entropy, reduction="sum"))


@habit
def contrastive():
    def loss_of(output, y):
        z = F.normalize(output, dim=1)
        return F.cross_entropy(z @ z.t() / 0.5, torch.arange(len(y)))

    return train(Net(), loss_of=loss_of)


@habit
def clipping():
    model, norms = Net(), []
    steps = optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        steps.step()
        step(loss)
    return model, norms


@habit
def accumulation():
    model, losses = Net(), []
    steps = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 4)
    for i, (x, y) in enumerate(batches(8)):
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        losses.append(float(loss))
        if i % 2:
            steps.step()
            schedule.step()
            steps.zero_grad()
            step(loss)
    return model, losses, steps.state_dict()


@habit
def decay_by_the_loop():
    model = Net()
    steps = optimizer(model)
    for i, (x, y) in enumerate(batches(6)):
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        if i % 3 == 2:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.99)
        step(loss)
    return model


@habit
def curriculum_by_a_global_step():
    state = {"step": 0}

    class Staged(Net):
        def forward(self, x):
            return super().forward(x * min(1.0, 0.2 * (1 + state["step"])))

    def loss_of(output, y):
        state["step"] += 1
        return F.cross_entropy(output, y)

    return train(Staged(), loss_of=loss_of), state


@habit
def two_optimizers():
    model = Net()
    one, other = torch.optim.SGD(model.blocks.parameters(), lr=0.1), torch.optim.Adam(model.head.parameters(), lr=0.01)
    for i, (x, y) in enumerate(batches()):
        loss = F.cross_entropy(model(x), y)
        one.zero_grad()
        other.zero_grad()
        loss.backward()
        one.step()
        if i % 2:
            other.step()
        step(loss)
    return model, one.state_dict(), other.state_dict()


@habit
def lbfgs():
    model, calls = Net(), Counter()
    steps = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for x, y in batches(3):
        def closure(x=x, y=y):
            calls.step()
            steps.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        step(steps.step(closure))
    return model, calls


@habit
def scaler():
    """As GradScaler does: the loss is scaled, and a step is left out where gradients overflow."""
    model, scale = Net(), 2.0**120
    steps = optimizer(model)
    for x, y in batches(6):
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad.div_(scale)
        if all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()) and scale < 2.0**118:
            steps.step()
            scale *= 2
        else:
            scale /= 4
        step(loss)
    return model, math.log2(scale)


@habit
def autocast():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)], nn.Linear(WIDTH, CLASSES))
    steps = optimizer(model)
    for x, y in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(x)
        loss = F.cross_entropy(output.float(), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


@habit
def gan():
    made, judge = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    makes, judges = torch.optim.Adam(made.parameters(), lr=0.01), torch.optim.Adam(judge.parameters(), lr=0.01)
    for x, _ in batches():
        fake = made(torch.randn(len(x), 4))
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(fake.detach())).mean()
        judges.zero_grad()
        loss.backward()
        judges.step()
        other = F.softplus(-judge(fake)).mean()
        makes.zero_grad()
        other.backward()
        makes.step()
        step(loss + other)
    return made, judge


@habit
def gradient_penalty():
    model = Net()
    steps = optimizer(model)
    for x, y in batches():
        x.requires_grad_()
        output = model(x)
        gradient, = torch.autograd.grad(output.sum(), x, create_graph=True)
        loss = F.cross_entropy(output, y) + 0.1 * gradient.square().sum()
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


@habit
def siamese():
    model = Net()
    steps = optimizer(model)
    for x, y in batches():
        loss = F.mse_loss(model(x), model(x.flip(0) * 0.9)) + F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


@habit
def two_backward_passes():
    model = Net()
    steps = optimizer(model)
    for x, y in batches():
        output = model(x)
        one, other = F.cross_entropy(output, y), output.square().mean()
        steps.zero_grad()
        one.backward(retain_graph=True)
        other.backward()
        steps.step()
        step(one + other)
    return model


@habit
def frozen_at_first():
    model = Net()
    model.blocks.requires_grad_(False)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches()):
        if i == 2:
            model.blocks.requires_grad_(True)
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


@habit
def sharpness_aware():
    """Two passes for each step: the weights are moved, and put back."""
    model = Net()
    steps = optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        moved = [p.grad * 0.05 for p in model.parameters()]
        with torch.no_grad():
            for p, m in zip(model.parameters(), moved):
                p.add_(m)
        steps.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, m in zip(model.parameters(), moved):
                p.sub_(m)
        steps.step()
        step(loss)
    return model


@habit
def loss_inside_the_model():
    class Whole(Net):
        def forward(self, x, y):
            output = super().forward(x)
            self.last = F.cross_entropy(output, y)
            return {"loss": self.last, "logits": output}

    model = Whole()
    steps = optimizer(model)
    for x, y in batches():
        loss = model(x, y)["loss"]
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


@habit
def data_parallel():
    model = Net()
    train(nn.DataParallel(model))
    return model


@habit
def hidden_state_in_the_loop():
    """A recurrent network whose state goes from batch to batch, outside the model."""
    cell, head = nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    model, state = nn.ModuleList([cell, head]), None
    steps = optimizer(model)
    for x, y in batches():
        state = cell(x, state)
        loss = F.cross_entropy(head(state), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        state = state.detach()
        step(loss)
    return model, state


@habit
def noise_of_gradients():
    model = Net()
    own = torch.Generator().manual_seed(12)
    steps = optimizer(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        steps.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad.add_(torch.randn(p.shape, generator=own), alpha=0.01)
        steps.step()
        step(loss)
    return model, own


@habit(handles=True)
def skips_batches_that_fail():
    """The job handles the error itself."""
    model, skipped = Net(), 0
    steps = optimizer(model)
    for x, y in batches():
        try:
            loss = F.cross_entropy(model(x), y)
            steps.zero_grad()
            loss.backward()
        except RuntimeError as e:
            if "can't allocate memory" not in str(e):
                raise
            skipped += 1
            continue
        steps.step()
        step(loss)
    return model, skipped


@habit(newer=True)
def functional_calls():
    model = Net()
    steps = optimizer(model)
    for x, y in batches():
        tangent = {name: torch.ones_like(p) for name, p in model.named_parameters()}
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            _, slope = torch.func.jvp(lambda p: F.cross_entropy(torch.func.functional_call(model, p, (x,)), y), (parameters,), (tangent,))
        loss = F.cross_entropy(model(x), y) * (1 + slope.abs())
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model
