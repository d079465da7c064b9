# Cross entropy in parts of the rows of its logits: what it computes on the way, such as copies of the logits in fp32,
# exists for one part at a time. Each part runs the functions of PyTorch that cross_entropy and its backward pass
# run, with the same arguments, so that the results are those of one piece.
#
# The gradient of the logits is made in the forward pass, while a part's log-softmax is at hand, for the gradient of the
# loss that the latest backward pass had. To multiply it by another one later would round twice, and in fp16 lose
# small values before the loss scale reaches them. So where the loss gets another gradient, the backward pass computes
# the parts again; the same holds where each row has its own gradient (no reduction).

import traceback

import torch

from ..base import ranout, room, wall
from ..model import garbage, rootstate
from . import upcast

# Bytes of the logits in fp32 from which parts are used, and the part of the memory that the process may
# have: under a small limit it is smaller logits that decide, where PyTorch holds three such copies.
LEAST, SHARE = 256 << 20, .05
# Bytes that a part works with: WORK where so much is free, up to half of what is free, but no more than MOST. The
# kernels of such a part take longer than their launches, and more would only raise the peak.
WORK, MOST = 256 << 20, 1 << 30
FEW = 16  # parts of which one is tried in any case
TRIES = 6  # times that the parts are halved where one runs out of memory
NONE, MEAN = 0, 1  # reductions, as torch.nn._reduction numbers them
IGNORED = -100
KINDS = 64  # of losses whose gradients are known

changed: list = []  # functions that are called where the job turns out to write to the logits
scales: dict = {}  # by kind of loss: the latest gradient of the loss, and whether the next one is expected to be the same
kinds: dict = {}  # by what they follow from: the types in which PyTorch computes


def size(logits):
    """Return the bytes of logits in fp32."""
    return logits.numel() * 4


def needs(logits):
    """Return the bytes that a cross entropy of these logits needs in parts: the gradient, and one part."""
    return logits.numel() * logits.element_size() + min(WORK, size(logits) // 4)


def least(allowed):
    """Return the bytes of logits in fp32 from which parts are used, where the process may have so many bytes."""
    return min(LEAST, int(SHARE * allowed)) if allowed else LEAST


def is_large(size, device):
    """Return whether logits of so many bytes in fp32 can be computed in parts. To ask for the memory takes microseconds."""
    return size >= LEAST or size >= LEAST // 16 and size >= least(room.allowed(device))


def works(torch, logits, target, weight, reduction, ignore, smoothing):
    """Return whether parts give what PyTorch's function gives for these arguments."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if type(logits) not in plain + (upcast.Later,) or not is_large(size(logits), logits.device) or logits.dim() < 2 or not logits.is_floating_point() or logits.layout != torch.strided:
        return False
    if type(target) not in plain or target.requires_grad or weight is not None and (type(weight) not in plain or weight.requires_grad):
        return False
    wanted = logits.shape if target.is_floating_point() else logits.shape[:1] + logits.shape[2:]
    return target.shape == wanted and can_divide(torch, logits) and logits.numel() > logits.shape[1]


def can_divide(torch, logits):
    """Return whether an autograd function can be used for these logits."""
    return logits.device.type in ("cpu", "cuda") and not transformed(torch, logits)


def transformed(torch, logits):
    """Return whether a transform of torch.func, or forward-mode differentiation, is active: none
    of them takes an autograd function."""
    active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
    level = getattr(getattr(torch._C, "_functorch", None), "maybe_get_level", lambda tensor: -1)
    return active() or level(logits) >= 0 or torch.autograd.forward_ad._current_level >= 0


def cross_entropy(plain, logits, target, weight, reduction, ignore, smoothing):
    """Return what plain, torch._C._nn.cross_entropy_loss, gives for the same arguments."""
    takes, last = logits.dtype, False
    if type(logits) is upcast.Later:
        logits, last = upcast.matrix(logits)
    if last and target.is_floating_point():
        logits, last = logits.reshape(-1, logits.shape[-1]), False
    if last:
        target = target.reshape(logits.shape[:-1])
    form = Form(plain, logits, target, weight, reduction, ignore, smoothing, takes, last)
    value = CrossEntropyInParts.apply(form, logits, target, weight)
    return value.reshape(-1) if last and reduction == NONE else value


class Form:
    """One cross entropy, without its tensors: what PyTorch computes, and in which parts that is done here.

    Takes: the type in which the job has PyTorch take the logits. Last: their last dimension has the classes, and the
    others are one in PyTorch's call.
    """

    def __init__(self, plain, logits, target, weight, reduction, ignore, smoothing, takes, last):
        self.plain, self.reduction, self.ignore, self.smoothing = plain, reduction, ignore, smoothing
        self.soft, self.last, self.takes = target.is_floating_point(), last, takes
        self.classes = logits.shape[-1 if self.last else 1]
        self.count = logits.numel() // self.classes
        self.losses = logits.shape[:-1] if self.last else logits.shape[:1] + logits.shape[2:]
        # The types of the log-softmax, and of the loss of each row.
        self.log, self.loss = types(plain, self.takes, self.classes, target, weight, ignore, smoothing, logits.device)
        if self.log != self.loss and (self.soft or smoothing):
            raise NotImplementedError("PyTorch computes this loss in several types")
        self.cast = rootstate.autocast(torch)
        self.graded = torch.is_grad_enabled() and logits.requires_grad
        self.kind = tuple(logits.shape[1:]), logits.dtype, reduction

    # Its parts: (first row, rows, first place, places), in the first dimension, and in that of the places where a
    # single row is too large.

    def parts(self, logits, free):
        """Return the parts, where so many bytes are free; None if that is not known."""
        # A part's log-softmax and its gradient, the logits in their type, and what soft targets are multiplied by.
        copies = 2 + (self.log != logits.dtype) + 2 * self.soft + (self.smoothing > 0 and not self.soft)
        whole = logits.numel() * (8 if self.log == torch.float64 else 4) * copies
        work = WORK if free is None else max(min(WORK, int(.9 * free)), min(free // 2, MOST))
        work = max(work, min(whole // FEW, WORK // FEW))
        rows, places = logits.shape[0], 1 if logits.dim() < 3 else logits.shape[1 if self.last else 2]
        row = max(whole // rows, 1)
        each = max(work // row, 1)
        found = [(i, min(each, rows - i), 0, places) for i in range(0, rows, each)]
        each = max(work * places // row, 1)
        if each >= places:
            return found
        return [(i, n, j, min(each, places - j)) for i, n, _, _ in found for j in range(0, places, each)]

    def over(self, logits, compute):
        """Call compute(part) for each part. Where one runs out of memory, it and the rest are done in halves."""
        todo, tries = self.parts(logits, wall.alone(room.free)(logits.device)), 0
        while todo:
            try:
                compute(todo[0])
                del todo[0]
                continue
            except Exception as e:
                failure, tries = e, tries + 1
            halves = [half for part in todo for half in halved(part)]
            if not ranout.is_one(failure) or tries > TRIES or len(halves) == len(todo):
                raise failure
            traceback.clear_frames(failure.__traceback__)
            todo, failure = halves, None
            garbage.collect()

    def of_logits(self, tensor, part):
        return cut(tensor, part, 1 if self.last else 2)

    def of_rows(self, tensor, part, dim=1):
        """Return a part of what has a number for each row, or for each class of each row (dim 2)."""
        piece = cut(tensor, part, dim)
        return piece.reshape(-1) if self.last else piece

    def of_target(self, target, part):
        return self.of_rows(target, part, 2 if self.soft else 1)

    def log_softmax(self, logits, part):
        piece = self.of_logits(logits, part).to(self.log)
        return torch.log_softmax(piece.reshape(-1, self.classes) if self.last else piece, 1)

    def forward(self, logits, target, weight, scale):
        """Return the loss, and the gradient of the logits where the loss has the gradient scale; None without one."""
        counted = None if self.soft else target != self.ignore
        divisor = self.divisor(target, weight, counted)
        scales = None if scale is None else self.scales(scale, weight, divisor)
        picked = logits.new_empty(self.losses, dtype=self.log)
        even = torch.empty_like(picked) if self.smoothing and not self.soft else None
        made = None if scale is None else torch.empty_like(logits, memory_format=torch.contiguous_format)

        def compute(part):
            logs, aim = self.log_softmax(logits, part), self.of_target(target, part)
            fill(cut(picked, part, 1), self.picked(logs, aim, weight))
            if even is not None:
                fill(cut(even, part, 1), (logs if weight is None else logs * along(weight, logs)).sum(1))
            if made is not None:
                self.make(made, part, logs, self.slope(logs, aim, weight, scales, divisor))

        self.over(logits, compute)
        return self.value(picked, even, target, weight, counted, divisor), made

    def backward(self, logits, target, weight, gradient):
        """Return the gradient of the logits."""
        divisor = self.divisor(target, weight, None if self.soft else target != self.ignore)
        made, scales = torch.empty_like(logits, memory_format=torch.contiguous_format), self.scales(gradient, weight, divisor)

        def compute(part):
            logs, aim = self.log_softmax(logits, part), self.of_target(target, part)
            mine = [self.of_rows(scale, part) for scale in scales] if self.reduction == NONE else scales
            self.make(made, part, logs, self.slope(logs, aim, weight, mine, divisor))

        self.over(logits, compute)
        return made

    # The loss of all rows, from the log-probability of each row's target.

    def divisor(self, target, weight, counted):
        """Return what a mean is divided by: the number of rows that count, or the sum of their weights."""
        if self.soft:
            return None
        if weight is None:
            return counted.sum().to(self.loss)
        return weight.gather(0, target.masked_select(counted).long()).sum().to(self.loss)

    def picked(self, logs, aim, weight):
        """Return for each row the log-probability of its target."""
        if not self.soft:
            return logs.gather(1, aim.masked_fill(aim == self.ignore, 0).long().unsqueeze(1)).squeeze(1)
        found = logs * self.smoothed(aim)
        return (found if weight is None else found * along(weight, logs)).sum(1)

    def smoothed(self, aim):
        return aim * (1 - self.smoothing) + self.smoothing / self.classes if self.smoothing > 0 else aim

    def value(self, picked, even, target, weight, counted, divisor):
        if self.soft:
            return reduced(-picked, self.reduction, picked.numel())
        picked = picked.to(self.loss)
        if weight is None:
            # The kernel that PyTorch uses, for one class: it adds the rows up in the same order.
            shape = (-1, 1) if self.last else self.losses[:1] + (1,) + self.losses[1:]
            aim = ((counted.long() - 1) * -IGNORED).reshape(-1) if self.last else (counted.long() - 1) * -IGNORED
            found = torch._C._nn.nll_loss_nd(picked.reshape(shape), aim, None, self.reduction, IGNORED)
        else:
            each = weight[target.masked_fill(~counted, 0).long()]
            found = reduced(-(picked * each).masked_fill(~counted, 0), self.reduction, divisor)
        if even is None:
            return found
        even = (-even).masked_fill_(~counted, 0)
        if self.reduction == MEAN and weight is None:
            even = even.masked_select(counted).mean()
        else:
            even = reduced(even, self.reduction, divisor)
        return (1 - self.smoothing) * found + even * (self.smoothing / self.classes)

    # The gradient of the logits, in the steps of PyTorch's own backward pass.

    def scales(self, gradient, weight, divisor):
        """Return the gradients of the terms of the loss, from that of the loss or of each row."""
        if self.soft:
            return [behind(torch.ops.aten.div.Scalar, self.count, gradient) if self.reduction == MEAN else gradient]
        if not self.smoothing:
            return [gradient]
        found, even = [behind(torch.ops.aten.mul.Scalar, factor, gradient) for factor in (1 - self.smoothing, self.smoothing / self.classes)]
        if self.reduction == MEAN:
            even = even / (divisor if weight is not None else int(divisor))
        return [found, even]

    def slope(self, logs, aim, weight, scales, divisor):
        """Return the gradient of a part's log-probabilities, from those of the terms, or of each row of the part."""
        if self.soft:
            rows = -scales[0] if self.reduction != NONE else -scales[0].unsqueeze(1)
            return (rows if weight is None else rows * along(weight, logs)) * self.smoothed(aim)
        found = self.nll_backward(scales[0], logs, aim, weight, divisor)
        if self.smoothing:
            rows = -scales[1].expand(aim.shape).masked_fill(aim == self.ignore, 0).unsqueeze(1)
            found.add_(rows if weight is None else rows * along(weight, logs))
        return found

    def nll_backward(self, gradient, logs, aim, weight, divisor):
        aten, logs = torch.ops.aten, logs.to(self.loss)
        if logs.dim() == 2:
            return aten.nll_loss_backward(gradient.contiguous(), logs, aim, weight, self.reduction, self.ignore, divisor)
        flat = logs.shape[:1] + (1, -1)
        gradient = gradient.reshape(flat) if self.reduction == NONE else gradient
        logs = logs.reshape(logs.shape[:2] + (1, -1))
        found = aten.nll_loss2d_backward(gradient, logs, aim.reshape(flat), weight, self.reduction, self.ignore, divisor)
        return found.reshape(aim.shape[:1] + (self.classes,) + aim.shape[1:])

    def make(self, made, part, logs, slope):
        """Write the gradient of a part of the logits."""
        out, slope = self.of_logits(made, part), slope.to(self.log)
        if made.dtype == self.log and out.is_contiguous() and out.shape == logs.shape:
            torch.ops.aten._log_softmax_backward_data.out(slope, logs, 1, self.log, out=out)
        else:
            fill(out, torch.ops.aten._log_softmax_backward_data(slope, logs, 1, self.log))

    # Which gradient the loss will have.

    def expected(self, logits):
        """Return the gradient that the loss will have, None where it is not known, or the logits' does not fit now."""
        last, same = scales.get(self.kind, (1.0, True))
        # Recomputation and offload handle what a graph saves: they know no gradient beside it.
        hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_tracing: None)
        if not self.graded or self.reduction == NONE or not same or hooks(True) is not None:
            return None
        free = wall.alone(room.free)(logits.device)
        if free is not None and free < logits.numel() * logits.element_size() + WORK // FEW:
            return None
        return last

    def learn(self, gradient):
        """Note the gradient that the loss has; return it, None where each row has its own."""
        if self.reduction == NONE:
            return None
        found = gradient.item()
        if len(scales) > KINDS:
            scales.clear()
        scales[self.kind] = found, found == scales.get(self.kind, (1.0, True))[0]
        return found


def types(plain, takes, classes, target, weight, ignore, smoothing, device):
    """Return the types of the log-softmax, and of the loss of each row: autocast may change both."""
    key = takes, target.dtype, weight is None or weight.dtype, smoothing > 0, device.type, str(rootstate.autocast(torch))
    if key not in kinds:
        with torch.inference_mode(False), torch.enable_grad(), unnoticed():
            logits = torch.zeros((1, classes), dtype=takes, device=device).requires_grad_()
            aim = target.new_zeros((1, classes) if target.is_floating_point() else (1,))
            losses = plain(logits, aim, None if weight is None else weight.clone(), NONE, ignore, smoothing)
            kinds[key] = softmax_of(losses.grad_fn)._saved_result.dtype, losses.dtype
    return kinds[key]


def unnoticed():
    """Keep what a graph of the hook saves from the hooks of the job: a checkpoint counts."""
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def softmax_of(node):
    """Return the node of the log-softmax in a graph."""
    todo = [node]
    for each in todo:
        if each.name().startswith("LogSoftmaxBackward"):
            return each
        todo += [inner for inner, _ in each.next_functions if inner is not None]
    raise LookupError("this PyTorch computes cross entropy without a log-softmax")


def reduced(losses, reduction, divisor):
    if reduction == NONE:
        return losses
    total = losses.sum()
    return total / divisor if reduction == MEAN else total


def behind(operator, number, gradient):
    """Return the gradient behind an operator with a number, as autograd computes it: in which type depends on its version."""
    with torch.enable_grad(), unnoticed():
        leaf = torch.zeros_like(gradient).requires_grad_()
        return torch.autograd.grad(operator(leaf, number), leaf, gradient)[0]


def along(weight, logs):
    """Return the weights of classes in the shape of log-probabilities."""
    return weight.view((1, -1) + (1,) * (logs.dim() - 2))


def cut(tensor, part, dim):
    """Return one part of a tensor whose dimension dim has the places."""
    i, n, j, m = part
    tensor = tensor.narrow(0, i, n)
    return tensor.narrow(dim, j, m) if tensor.dim() > dim else tensor


def fill(piece, value):
    piece.copy_(value.reshape(piece.shape))


def halved(part):
    """Return the halves of a part, or a part that has none."""
    i, n, j, m = part
    if n > 1:
        return [(i, n // 2, j, m), (i + n // 2, n - n // 2, j, m)]
    return [(i, n, j, m // 2), (i, n, j + m // 2, m - m // 2)] if m > 1 else [part]


class CrossEntropyInParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, form, logits, target, weight):
        if form.graded:
            ctx.save_for_backward(logits, target, weight)
        ctx.form, ctx.scale = form, form.expected(logits)
        scale = None if ctx.scale is None else torch.full((), ctx.scale, dtype=form.loss, device=logits.device)
        with torch.autocast(logits.device.type, enabled=False):
            value, ctx.made = form.forward(logits.detach(), target, weight, scale)
        return value.reshape(form.losses) if form.reduction == NONE else value

    @staticmethod
    @wall.remedy
    def backward(ctx, gradient):
        form = ctx.form
        made, ctx.made = ctx.made, None  # what the caller gets may be changed by it
        if not torch.is_grad_enabled():
            scale = form.learn(gradient)
            if made is not None and scale == ctx.scale:
                return None, made, None, None
        del made
        try:
            logits, target, weight = ctx.saved_tensors
        except RuntimeError as e:  # they were written to since
            for each in changed:
                wall.alone(each)()
            raise wall.raising(e)
        if torch.is_grad_enabled():  # the gradient is differentiated again: as PyTorch does it
            given = (logits.reshape(-1, form.classes) if form.last else logits).to(form.takes)
            with rootstate.cast_as(form.cast):
                loss = form.plain(given, target.reshape(-1) if form.last else target, weight, form.reduction, form.ignore, form.smoothing)
            return (None,) + torch.autograd.grad(loss, logits, gradient.reshape(loss.shape), create_graph=True) + (None,) * 2
        with torch.autocast(logits.device.type, enabled=False):
            return None, form.backward(logits.detach(), target, weight, gradient), None, None
