package script

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// trains is a script whose loop has its own loss: the code before the loop, and the statements
// that compute loss from out and y.
func trains(before, loss string) string {
	return head + "import torch.nn as nn\nimport torch.nn.functional as F\nmodel = torch.nn.Linear(4, 4)\n" + before + `
train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
for i, (x, y) in enumerate(train_loader):
    out = model(x)
` + "    " + strings.ReplaceAll(strings.TrimSpace(loss), "\n", "\n    ") + `
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
`
}

// TestLossIsRecognised: the class of a script's loss, and its proof.
func TestLossIsRecognised(t *testing.T) {
	const exact, average = strategy.Exact, strategy.Average
	for name, test := range map[string]struct {
		before, loss string
		class        strategy.Training
		reason       string
	}{
		"a function":                     {"", "loss = F.cross_entropy(out, y) / args.accum\nloss.backward()", exact, "the loss is a mean over the samples (train.py:15), divided by --accum"},
		"a subclass's method":            {"class Base:\n    def total(self, a, b):\n        return self.step(a, b)\n    def step(self, a, b):\n        raise NotImplementedError()\nclass Own(Base):\n    def step(self, a, b):\n        return F.cross_entropy(a, b)\ntask = Own()", "loss = task.total(out, y)\n(loss / args.accum).backward()", exact, ""},
		"in two steps":                   {"", "loss = F.mse_loss(out, y)\nloss = loss / args.accum\nloss.backward()", exact, "(train.py:15), divided by --accum"},
		"in place":                       {"", "loss = F.mse_loss(out, y)\nloss /= args.accum\nloss.backward()", exact, ""},
		"a criterion":                    {"criterion = nn.CrossEntropyLoss(label_smoothing=.1).cuda()", "loss = criterion(out, y)\n(loss / args.accum).backward()", exact, ""},
		"where there are several":        {"criterion = nn.BCEWithLogitsLoss()", "loss = criterion(out, y)\nif args.accum > 1:\n    loss = loss / args.accum\nloss.backward()", exact, ""},
		"a scaler":                       {"scaler = torch.cuda.amp.GradScaler()", "with torch.autocast('cuda'):\n    loss = F.l1_loss(out, y)\nscaler.scale(loss / args.accum).backward()", exact, ""},
		"an expression":                  {"", "loss = ((out - y) ** 2).mean()\n(loss / args.accum).backward()", exact, ""},
		"per sample, then their mean":    {"", "loss = F.cross_entropy(out, y, reduction='none').mean()\n(loss / args.accum).backward()", exact, ""},
		"a sum over the samples' number": {"", "loss = F.mse_loss(out, y, reduction='sum') / x.size(0)\n(loss / args.accum).backward()", exact, ""},
		"the inverse":                    {"", "loss = F.mse_loss(out, y) * (1.0 / args.accum)\nloss.backward()", exact, ""},
		"two of them":                    {"", "a = F.mse_loss(out, y)\nb = F.l1_loss(out, y)\nloss = a + 0.1 * b\n(loss / args.accum).backward()", exact, ""},
		"a penalty on weights":           {"", "loss = F.mse_loss(out, y) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())\n(loss / args.accum).backward()", exact, ""},
		"a model that computes it":       {"class Net(nn.Module):\n    def forward(self, x, y):\n        out = self.net(x)\n        return out, F.cross_entropy(out, y)\nnet = Net()", "_, loss = net(x, y)\n(loss / args.accum).backward()", exact, "(train.py:14)"},
		"a library's classifier":         {"from transformers import AutoModelForSequenceClassification\nnet = AutoModelForSequenceClassification.from_pretrained('bert')", "loss = net(input_ids=x, labels=y).loss\n(loss / args.accum).backward()", exact, ""},
		"a library's language model":     {"from transformers import AutoModelForCausalLM\nnet = AutoModelForCausalLM.from_pretrained('gpt2')", "loss = net(input_ids=x, labels=y).loss\n(loss / args.accum).backward()", average, "leaves out labels of -100 (train.py:16)"},
		"its labels are its inputs":      {"from transformers import AutoModelForCausalLM\nnet = AutoModelForCausalLM.from_pretrained('gpt2')", "loss = net(input_ids=x, labels=x).loss\n(loss / args.accum).backward()", exact, ""},
		"tokens that are left out":       {"", "loss = F.cross_entropy(out, y, ignore_index=0) / args.accum\nloss.backward()", average, "the mean leaves out ignore_index (train.py:15)"},
		"classes with weights":           {"criterion = nn.CrossEntropyLoss(weight=torch.ones(4))", "loss = criterion(out, y) / args.accum\nloss.backward()", average, "the mean is weighted by classes"},
		"a mask":                         {"", "mask = y > 0\nloss = (F.cross_entropy(out, y, reduction='none') * mask).sum() / mask.sum()\n(loss / args.accum).backward()", average, "it is divided by mask.sum()"},
		"some of the elements":           {"", "mask = y > 0\nloss = F.cross_entropy(out, y, reduction='none')[mask].mean()\n(loss / args.accum).backward()", average, "some of the elements"},
		"the root of a mean":             {"", "loss = torch.sqrt(F.mse_loss(out, y))\n(loss / args.accum).backward()", average, "torch.sqrt(F.mse_loss(out, y)) is no plain mean"},
		"a product of means":             {"", "loss = F.mse_loss(out, y) * F.l1_loss(out, y)\n(loss / args.accum).backward()", average, "F.mse_loss(out, y) * F.l1_loss(out, y) is no plain mean"},
		"a part that is not known":       {"", "loss = F.mse_loss(out, y) + penalty(out)\n(loss / args.accum).backward()", average, "penalty(out) may not work on each sample by itself (train.py:15)"},
		"a sum, or a mean":               {"class Focal(nn.Module):\n    def __init__(self, size_average=True):\n        self.size_average = size_average\n    def forward(self, x, y):\n        each = F.cross_entropy(x, y, reduction='none')\n        if self.size_average:\n            loss = each.mean()\n        else:\n            loss = each.sum()\n        return loss\nfocal = Focal()", "loss = focal(out, y)\n(loss / args.accum).backward()", average, "it may be a sum"},
		"advantages that are normalised": {"def normal(x):\n    return (x - x.mean()) / (x.std() + 1e-8)", "loss = -(normal(y) * out).mean()\n(loss / args.accum).backward()", average, "x - x.mean() may not work on each sample by itself (train.py:12)"},
		"halves that are compared":       {"", "a, b = out.chunk(2)\nloss = F.mse_loss(out, y) + F.mse_loss(a, b)\n(loss / args.accum).backward()", average, "out.chunk(2) may not work on each sample by itself (train.py:15)"},
		"features cut into heads":        {"", "a, b = out.chunk(2, dim=-1)\nloss = F.mse_loss(a, b)\n(loss / args.accum).backward()", exact, ""},
		"neighbours":                     {"", "loss = (out[1:] - out[:-1]).abs().mean()\n(loss / args.accum).backward()", average, "out[1:] may not work on each sample by itself"},
		"a centred target":               {"", "loss = F.mse_loss(out, y - y.mean())\n(loss / args.accum).backward()", average, "y - y.mean() may not work on each sample by itself"},
		"a share of the maximum":         {"", "loss = F.mse_loss(out, y / y.abs().max())\n(loss / args.accum).backward()", average, "y.abs().max() may not work on each sample by itself"},
		"a baseline that moves":          {"baseline = 0.0", "loss = ((out - baseline) ** 2).mean()\n(loss / args.accum).backward()\nbaseline = 0.9 * baseline + 0.1 * out.mean().item()", average, "baseline is kept from one micro batch to the next (train.py:17)"},
		"the number of the micro batch":  {"", "loss = F.mse_loss(out, y) / (1 + 0.1 * i)\n(loss / args.accum).backward()", average, ""},
		"a hook on the gradients":        {"for p in net.parameters():\n    p.register_hook(lambda g: g.clamp(-1, 1))", "loss = F.mse_loss(out, y)\n(loss / args.accum).backward()", average, "p.register_hook"},
		"the batch size as a factor":     {"", "loss = F.mse_loss(out, y) * args.batch_size / 32\n(loss / args.accum).backward()", average, "args.batch_size"},
		"a chosen normalisation":         {"norm = getattr(nn, KIND + 'Norm1d')(4)", "loss = F.mse_loss(norm(out), y)\n(loss / args.accum).backward()", average, "norm(out) may not work on each sample by itself"},
		"weights of a statistic":         {"", "each = F.mse_loss(out, y, reduction='none').mean(-1)\nloss = (each * (each > each.mean())).mean()\n(loss / args.accum).backward()", average, "each > each.mean() is no plain mean"},
		"a model that is prepared":       {"from accelerate import Accelerator\nfrom transformers import AutoModelForSequenceClassification\nacc = Accelerator()\nnet = AutoModelForSequenceClassification.from_pretrained('bert')\nnet, optimizer = acc.prepare(\n    net, optimizer)", "loss = net(x, labels=y).loss\nacc.backward(loss / args.accum)", exact, ""},
		"noise":                          {"", "loss = F.mse_loss(out + torch.randn_like(out), y)\n(loss / args.accum).backward()", average, "random numbers are drawn for each micro batch (train.py:15"},
		"a method divides":               {"", "loss = F.mse_loss(out, y)\nloss = loss.div(args.accum)\nloss.backward()", exact, "(train.py:15), divided by --accum"},
		"parts that are added up":        {"", "loss = F.mse_loss(out, y)\nloss += 0.4 * F.l1_loss(out, y)\nloss /= args.accum\nloss.backward()", exact, ""},
		"a named tuple":                  {"from collections import namedtuple\nOutput = namedtuple('Output', 'loss logits')\nclass Net(nn.Module):\n    def forward(self, x, y):\n        out = self.net(x)\n        return Output(F.cross_entropy(out, y), out)\nnet = Net()", "loss = net(x, y).loss\n(loss / args.accum).backward()", exact, ""},
		"the hardest samples":            {"", "losses = F.mse_loss(out, y, reduction='none')\nloss = losses.topk(4).values.mean()\n(loss / args.accum).backward()", average, "losses.topk(4) may not work on each sample by itself"},
		"the best of each sample":        {"", "loss = out.max(dim=1).values.mean()\n(loss / args.accum).backward()", exact, ""},
		"samples that are shifted":       {"", "loss = F.mse_loss(out, out.roll(1, 0))\n(loss / args.accum).backward()", average, "out.roll(1, 0) may not work on each sample by itself (train.py:15"},
		"statistics in a layer":          {"class Net(nn.Module):\n    def forward(self, x):\n        return self.head(x / x.std(0))\nnet = Net()", "loss = F.mse_loss(net(x), y)\n(loss / args.accum).backward()", average, "x.std(0) may not work on each sample by itself (train.py:13)"},
		"a weight of several layers":     {"class Net(nn.Module):\n    def forward(self, x):\n        return x * self.mix.softmax(0)[0]\nnet = Net()", "loss = F.mse_loss(net(x), y)\n(loss / args.accum).backward()", exact, ""},
		"heads":                          {"", "losses = []\nfor k in range(4):\n    losses.append(F.mse_loss(out[:, k], y[:, k]))\nloss = sum(losses) / len(losses)\n(loss / args.accum).backward()", exact, ""},
		"heads by name":                  {"", "losses = {k: F.mse_loss(v, y) for k, v in {'a': out, 'b': out * 2}.items()}\nloss = sum({'a': 0.5, 'b': 2.0}[k] * v for k, v in losses.items())\n(loss / args.accum).backward()", exact, ""},
		"functions in a loop":            {"", "loss = 0.0\nfor w, fn in ((1.0, F.mse_loss), (0.5, F.l1_loss)):\n    loss = loss + w * fn(out, y)\n(loss / args.accum).backward()", exact, ""},
		"samples one by one":             {"", "loss = 0.0\nfor a, b in zip(out, y):\n    loss = loss + F.mse_loss(a, b)\n(loss / args.accum).backward()", average, "it is added up in a loop"},
		"a sum that adds up":             {"GLOBAL = 32", "loss = F.mse_loss(out, y, reduction='sum') / GLOBAL\nloss.backward()", exact, "whose gradients add up"},
		"gradients divided for the loss": {"", "loss = F.mse_loss(out, y)\nloss.backward()\nif (i + 1) % args.accum == 0:\n    for p in model.parameters():\n        p.grad /= args.accum", exact, "divided by --accum"},
		"gradients of each sample":       {"", "g, = torch.autograd.grad(out.sum(), x, create_graph=True)\nloss = ((g.norm(2, dim=1) - 1) ** 2).mean()\n(loss / args.accum).backward()", exact, ""},
		"a penalty by itself":            {"", "(1e-4 * sum(p.pow(2).sum() for p in model.parameters()) / args.accum).backward()\nloss = F.mse_loss(out, y)\n(loss / args.accum).backward()", exact, ""},
		"one that is not listed":         {"", "loss = F.mse_loss(torch.unknown(out), y)\n(loss / args.accum).backward()", average, "torch.unknown(out) may not work on each sample by itself (train.py:15)"},
		"the samples as a dimension":     {"", "loss = -(out.log_softmax(-2) * y).mean()\n(loss / args.accum).backward()", average, "out.log_softmax(-2) may not work"},
		"a dimension that was taken":     {"", "loss = F.mse_loss(out.squeeze(-1).softmax(-1), y)\n(loss / args.accum).backward()", average, "out.squeeze(-1).softmax(-1) may not work"},
		"attention over the samples":     {"class Net(nn.Module):\n    def forward(self, x):\n        q, k, v = self.qkv(x).chunk(3, dim=-1)\n        return self.head(F.scaled_dot_product_attention(q, k, v))\nnet = Net()", "loss = F.mse_loss(net(x), y)\n(loss / args.accum).backward()", average, "scaled_dot_product_attention(q, k, v) may not work"},
		"attention in a sample":          {"class Net(nn.Module):\n    def forward(self, x):\n        B, T, C = x.shape\n        q, k, v = self.qkv(x).chunk(3, dim=-1)\n        q = q.view(B, T, 4, C // 4).transpose(1, 2)\n        k = k.view(B, T, 4, C // 4).transpose(1, 2)\n        a = (q @ k.transpose(-2, -1) / C ** 0.5).softmax(dim=-1)\n        return self.head((a @ v.view(B, T, 4, C // 4).transpose(1, 2)).transpose(1, 2).reshape(B, T, C))\nnet = Net()", "loss = F.mse_loss(net(x), y)\n(loss / args.accum).backward()", exact, ""},
		"a dimension before the samples": {"class Net(nn.Module):\n    def forward(self, x):\n        h, _ = self.rnn(x.transpose(0, 1))\n        return self.head(h[-1])\n    def __init__(self):\n        self.rnn = nn.GRU(4, 4)\nnet = Net()", "loss = F.mse_loss(net(x), y)\n(loss / args.accum).backward()", exact, ""},
		"a temperature that is kept":     {"class Temp:\n    def __init__(self):\n        self.t = 2.0\n    def get(self):\n        return self.t\n    def lower(self):\n        self.t = self.t * 0.9\ntemp = Temp()", "loss = F.mse_loss(out / temp.get(), y)\ntemp.lower()\n(loss / args.accum).backward()", average, "self.t is kept from one micro batch to the next"},
		"a number of the step":           {"updates = 0", "loss = F.mse_loss(out, y) * (1 + updates)\n(loss / args.accum).backward()\nif (i + 1) % args.accum == 0:\n    updates += 1\n    optimizer.step()", exact, ""},
		"a default that is changed":      {"def scaled(l, n=[0]):\n    n[0] += 1\n    return l.mean() / n[0]", "loss = scaled(F.mse_loss(out, y, reduction='none'))\n(loss / args.accum).backward()", average, "it is divided by n[0], which differs from one micro batch to the next"},
		"only some micro batches":        {"", "loss = F.mse_loss(out, y)\nif i % 4 == 0:\n    loss = loss + out.abs().mean()\n(loss / args.accum).backward()", average, "if i % 4 == 0"},
		"an end by the micro batches":    {"", "loss = F.mse_loss(out, y)\nif i >= 6:\n    break\n(loss / args.accum).backward()", average, "if i >= 6"},
		"the size as a temperature":      {"", "loss = F.mse_loss(out / (x.size(0) / 32), y)\n(loss / args.accum).backward()", average, "x.size(0)"},
		"own clipping":                   {"def clip(net, c):\n    for p in net.parameters():\n        p.grad.mul_(c / p.grad.norm())", "loss = F.mse_loss(out, y)\n(loss / args.accum).backward()\nclip(model, 1.0)", average, "p.grad.mul_(c / p.grad.norm()) is run for each micro batch (train.py:13)"},
		"own clipping once a step":       {"def clip(net, c):\n    for p in net.parameters():\n        p.grad.mul_(c / p.grad.norm())", "loss = F.mse_loss(out, y)\n(loss / args.accum).backward()\nif (i + 1) % args.accum == 0:\n    clip(model, 1.0)", exact, ""},
		"a rate for each micro batch":    {"", "loss = F.mse_loss(out, y)\n(loss / args.accum).backward()\nfor g in optimizer.param_groups:\n    g['lr'] = min(1, i / len(train_loader))", average, "g['lr'] = min(1, i / len(train_loader)) is run for each micro batch"},
		"a decay by the batch size":      {"opt = torch.optim.AdamW(model.parameters(), weight_decay=0.01 * args.batch_size)", "loss = F.mse_loss(out, y)\n(loss / args.accum).backward()", average, "torch.optim.AdamW("},
		"other batches":                  {"others = iter(DataLoader(other_set, batch_size=8))", "loss = F.mse_loss(out, y) + model(next(others)).abs().mean()\n(loss / args.accum).backward()", average, "batches of 8, whatever the micro batch is"},
		"nothing that is known":          {"", "loss = distance(out, y)\n(loss / args.accum).backward()", average, "distance(out, y) may not work on each sample by itself (train.py:15)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, map[string]string{"train.py": trains(test.before, test.loss)})
			if got := s.Loss(); got.Class != test.class || !strings.Contains(got.Reason, test.reason) || got.Reason == "" {
				t.Errorf("%+v, want %s, %s", got, test.class, test.reason)
			}
			if got := s.summary(strategy.MicroBatchSize); got != "--batch-size" {
				t.Errorf("the micro batch is %s", got)
			}
		})
	}
}

// Slices of a loop that numbers them are samples, whatever the name of their width is.
func TestLossOfNumberedSlicesIsRecognised(t *testing.T) {
	s := decided(t, map[string]string{"train.py": `import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--accum", type=int, default=2)
args = parser.parse_args()
B = args.width
model, criterion = torch.nn.Linear(4, 4), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=.1)
x, y = torch.randn(64, 4), torch.randint(4, (64,))
for n, i in enumerate(range(0, len(x), B)):
    xb, yb = x[i:i + B], y[i:i + B]
    loss = criterion(model(xb), yb) / args.accum
    loss.backward()
    if (n + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
`})
	if got := s.Loss(); got.Class != strategy.Exact || s.summary(strategy.MicroBatchSize) != "--width" {
		t.Errorf("%+v, %s", got, s.summary(strategy.MicroBatchSize))
	}
}

// A step after the first micro batch covers fewer samples.
func TestStepAfterTheFirstMicroBatchIsNotExact(t *testing.T) {
	script := strings.Replace(trains("", "loss = F.mse_loss(out, y) / args.accum\nloss.backward()"), "(i + 1) % args.accum", "i % args.accum", 1)
	s := decided(t, map[string]string{"train.py": script})
	if got := s.Loss(); got.Class != strategy.Average || !strings.Contains(got.Reason, "after one micro batch") {
		t.Errorf("%+v", got)
	}
}
