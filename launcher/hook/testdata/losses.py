# Reads the graphs of many losses over 8 samples, and prints for each what is found: a line of JSON. "": nothing.
# No operation may be called while a graph is read.
import json
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, sys.argv[1])
from inside.observe import lossgraph  # noqa: E402

torch.manual_seed(0)
ROWS, CLASSES, LENGTH = 8, 5, 6
x, labels = torch.randn(ROWS, 7), torch.randint(0, CLASSES, (ROWS,))
targets, weights, column = torch.rand(ROWS, CLASSES), torch.rand(ROWS), torch.rand(ROWS)
words = torch.randint(0, CLASSES, (ROWS, LENGTH))
mask = torch.ones(ROWS, LENGTH)
mask[0, 3:] = 0
net, tokens = torch.nn.Linear(7, CLASSES), torch.nn.Embedding(CLASSES, CLASSES)
head, wide = torch.nn.Parameter(torch.randn(CLASSES, 4)), torch.nn.Parameter(torch.randn(ROWS, ROWS))
given_mask = torch.rand(ROWS) > 0.5
READING: list = []
LOADED = [x, labels, targets, weights, words, mask, given_mask]


def out(module=net, given=x):
    value = module(given)
    lossgraph.mark(value)
    return value


def per_sample():
    return F.cross_entropy(out(), labels, reduction="none")


def contrast():
    a, b = F.normalize(out(), dim=1), F.normalize(out(), dim=1)
    return F.cross_entropy(a @ b.t() / 0.1, torch.arange(ROWS))


def focal():
    one = per_sample()
    return ((1 - torch.exp(-one)) ** 2 * one).mean()


def logps():
    return out(tokens, words).log_softmax(-1).gather(-1, words[:, :, None]).squeeze(-1).sum(-1)


def token_mean():
    one = F.cross_entropy(out(tokens, words).view(-1, CLASSES), words.view(-1), reduction="none")
    return (one * mask.view(-1)).sum() / mask.sum()


def threshold():
    one = per_sample()
    return one[one > one.mean()].mean()


def by_order():
    one = per_sample()
    return one[one.argsort(descending=True)[:3]].mean()


def nonzero():
    one = per_sample()
    return one[(one > one.detach().median()).nonzero().squeeze(1)].mean()


def chosen():
    one = per_sample()
    return one.index_select(0, one.argsort()[-2:]).mean()


def masked_select():
    one = per_sample()
    return one.masked_select(one > one.detach().mean()).sum()


def hardest_tokens():
    one = F.cross_entropy(out(tokens, words).view(-1, CLASSES), words.view(-1), reduction="none")
    return one.topk(9).values.mean()


def of_each(function):
    one = F.cross_entropy(out(tokens, words).transpose(1, 2), words, reduction="none")
    return function(one).mean()


def inside_of_the_root(function):
    value = function()
    lossgraph.mark(value)
    return value


def raw():
    return net(x)


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    def ends(value):
        assert not READING, "the job's code was run"
        return (F.cross_entropy(value, labels, reduction="none") * value.sum(1)).mean()

    return checkpoint(ends, out(), use_reentrant=False)


LOSSES = {
    "": {
        "cross entropy": lambda: F.cross_entropy(out(), labels),
        "cross entropy, sum": lambda: F.cross_entropy(out(), labels, reduction="sum"),
        "cross entropy, none and mean": lambda: per_sample().mean(),
        "cross entropy, none and sum": lambda: per_sample().sum(),
        "label smoothing": lambda: F.cross_entropy(out(), labels, label_smoothing=0.1),
        "divided by the accumulation": lambda: F.cross_entropy(out(), labels) / 4,
        "a sum divided by the samples": lambda: per_sample().sum() / ROWS,
        "two parts": lambda: F.cross_entropy(out(), labels) + 0.3 * out().pow(2).mean(),
        "with a penalty on the weights": lambda: F.cross_entropy(out(), labels) + 0.01 * head.pow(2).sum(),
        "binary cross entropy": lambda: F.binary_cross_entropy_with_logits(out(), targets),
        "binary cross entropy of probabilities": lambda: F.binary_cross_entropy(out().sigmoid(), targets),
        "squares": lambda: F.mse_loss(out(), targets),
        "squares by hand": lambda: ((out() - targets) ** 2).mean(),
        "absolute": lambda: F.l1_loss(out(), targets),
        "smooth": lambda: F.smooth_l1_loss(out(), targets),
        "huber": lambda: F.huber_loss(out(), targets, delta=0.5),
        "one column": lambda: F.mse_loss(out()[:, 0], column),
        "triplets": lambda: F.triplet_margin_loss(out(), out(), out()),
        "focal": focal,
        "scores of a text": lambda: -F.logsigmoid(0.1 * logps()).mean(),
        "tokens": lambda: F.cross_entropy(out(tokens, words).view(-1, CLASSES), words.view(-1)),
        "tokens, shifted": lambda: F.cross_entropy(out(tokens, words)[:, :-1].reshape(-1, CLASSES), words[:, 1:].reshape(-1)),
        "tokens, transposed": lambda: F.cross_entropy(out(tokens, words).transpose(1, 2), words),
        "weights from the loader": lambda: (per_sample() * weights).mean(),
        "squares of probabilities": lambda: F.mse_loss(out().softmax(1), targets),
        "centres of classes": lambda: F.cross_entropy(F.normalize(out()) @ head, labels % 4),
        "the largest score of each sample": lambda: out().max(1).values.mean(),
        "the hardest tokens of each sample": lambda: of_each(lambda one: one.topk(2, dim=1).values),
        "sorted scores of each sample": lambda: out().sort(1).values[:, -1].mean(),
        "norm of each sample": lambda: out().norm(dim=1).mean(),
        "computed in the root": lambda: inside_of_the_root(lambda: F.cross_entropy(raw(), labels)),
        "a mean computed in the root": lambda: inside_of_the_root(lambda: raw().pow(2).mean()) / 2,
        "mean over a mask": token_mean,
        "tokens of a mask": lambda: F.cross_entropy(out(tokens, words)[mask.bool()], words[mask.bool()]),
        "weights from elsewhere": lambda: (per_sample() * (weights / weights.sum())).sum(),
        "masked by a threshold": lambda: (per_sample() * (per_sample() > 1).float()).mean(),
        "divergence": lambda: F.kl_div(out().log_softmax(1), targets.softmax(1), reduction="batchmean"),
        "ctc": lambda: F.ctc_loss(out().log_softmax(1)[:, None], labels[None, :2] % 4 + 1, [ROWS], [2]),
        "neighbours": lambda: F.mse_loss(out(), out().roll(1, 0)),
        "checkpointed": checkpointed,
        "another function": lambda: torch.fft.rfft(out()).abs().mean(),
        "the most of a parameter": lambda: F.cross_entropy(out(), labels) + 0.1 * wide.abs().max(),
        "real tokens": lambda: F.cross_entropy(out(tokens, words).flatten(0, 1)[mask.flatten().bool()], words[mask.bool()]),
        "the largest score, samples second": lambda: out().t().max(0).values.mean(),
        "a mask of the loader": lambda: per_sample()[given_mask].mean(),
        "an index of all samples": lambda: per_sample()[torch.randperm(ROWS)].mean(),
        "routes in the root": lambda: inside_of_the_root(lambda: F.cross_entropy(raw().topk(2, dim=1).values, labels % 2)),
        "root of a mean": lambda: F.mse_loss(out(), targets).sqrt(),
        "targets repeated": lambda: F.mse_loss(out()[:, :1], column),
        "targets repeated by hand": lambda: (out()[:, :1] - column).pow(2).mean(),
    },
    "no": {
        "classes weigh": lambda: F.cross_entropy(out(), labels, weight=torch.rand(CLASSES)),
        "contrast": contrast,
        "spread over the samples": lambda: out().std(0).mean(),
        "softmax over the samples": lambda: -out()[:, 0].log_softmax(0).mean(),
        "softmax over the batch": lambda: -(out().log_softmax(0) * targets).sum(),
        "logsumexp of the batch": lambda: per_sample().logsumexp(0),
        "one list of scores": lambda: F.cross_entropy(out()[:, 0], torch.rand(ROWS).softmax(0)),
        "norm of the batch": lambda: out().norm(),
        "samples second": lambda: out().t().softmax(1).pow(2).sum(),
        "cosines": lambda: (F.normalize(out()) @ F.normalize(out()).t()).pow(2).mean(),
        "a covariance": lambda: (out().t() @ out()).pow(2).mean(),
        "distances": lambda: torch.cdist(out(), out()).mean(),
    },
    "refused": {
        "topk": lambda: per_sample().topk(3).values.mean(),
        "topk divided": lambda: per_sample().topk(3).values.mean() / 4,
        "sorted": lambda: per_sample().sort(descending=True).values[:4].mean(),
        "msort": lambda: per_sample().msort()[:4].mean(),
        "kthvalue": lambda: per_sample().kthvalue(2).values,
        "median": lambda: per_sample().median(),
        "median of scores": lambda: out().median(0).values.sum(),
        "largest": lambda: per_sample().max(),
        "smallest of scores": lambda: out().amin(0).sum(),
        "quantile": lambda: per_sample().quantile(0.75),
        "threshold": threshold,
        "by order": by_order,
        "nonzero": nonzero,
        "index select": chosen,
        "masked select": masked_select,
        "topk of columns": lambda: out().topk(2, dim=0).values.mean(),
        "topk, samples second": lambda: out().t().topk(2, dim=1).values.mean(),
        "smallest of two": lambda: (F.cross_entropy(out(), labels) + per_sample().sort().values[:2].mean()) / 2,
        "gathered": lambda: per_sample().gather(0, per_sample().argsort()[:3]).mean(),
        "hardest tokens in the root": lambda: inside_of_the_root(lambda: F.cross_entropy(raw(), labels, reduction="none").sort().values[:3].mean()),
        "hardest tokens of the batch": hardest_tokens,
        "topk in the root": lambda: inside_of_the_root(lambda: F.cross_entropy(raw(), labels, reduction="none").topk(2).values.mean()),
    },
}


ALLOWED = {"aten::detach", "detach", "aten::alias", "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"}

for want, losses in LOSSES.items():
    for name, make in losses.items():
        loss = make()
        node = loss.grad_fn
        while node.name().startswith("Div") and lossgraph.marked(node, 0) is None and not any(child for child, _ in node.next_functions[1:]):
            node = node.next_functions[0][0]
        READING.append(True)
        with torch.autograd.profiler.profile() as seen:
            selects, compares = lossgraph.read(node, ROWS, {t.data_ptr() for t in LOADED})
        READING.pop()
        computed = {e.name for e in seen.function_events} - ALLOWED
        loss.backward()
        word = "refused" if selects else "no" if compares else ""
        print(json.dumps({"loss": name, "want": want, "word": word, "why": selects or compares, "computed": sorted(computed)}))
