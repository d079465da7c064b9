package script

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// TestUnequalMicroBatches: if a smaller micro batch would change the training, it is not offered,
// and the reason names the line.
func TestUnequalMicroBatches(t *testing.T) {
	const divided = "\n(loss / args.accum).backward()"
	for name, test := range map[string]struct{ before, loss, want string }{
		"a sum":                        {"", "loss = F.cross_entropy(out, y, reduction='sum')" + divided, `the loss is a sum over the samples (train.py:15: reduction="sum"), divided by --accum`},
		"a sum of a criterion":         {"criterion = nn.MSELoss(reduction='sum')", "loss = criterion(out, y)" + divided, "the loss is a sum over the samples (train.py:15"},
		"a sum at the end":             {"", "loss = ((out - y) ** 2).sum()" + divided, "the loss is a sum over the samples (train.py:15"},
		"a part that is a sum":         {"", "kl = -0.5 * torch.sum(1 + out - out.exp())\nloss = F.mse_loss(out, y) + kl" + divided, "the loss is a sum over the samples (train.py:15"},
		"divided twice":                {"", "loss = F.mse_loss(out, y) / args.accum" + divided, "the gradients are divided by --accum more than once (train.py:16)"},
		"VICReg":                       {"def vicreg(z, y):\n    z = z - z.mean(dim=0)\n    cov = (z.T @ z) / (len(z) - 1)\n    std = torch.sqrt(z.var(dim=0) + 1e-4)\n    return cov.pow(2).mean() + F.relu(1 - std).mean()", "loss = vicreg(out, y)" + divided, "the code compares the samples of one micro batch with each other (train.py:12)"},
		"Barlow Twins":                 {"class Twins(nn.Module):\n    def forward(self, a, b):\n        c = torch.einsum('bi,bj->ij', a, b)\n        return (c - 1).pow(2).mean()\ntwins = Twins()", "loss = twins(out, model(y))" + divided, "with each other (train.py:13)"},
		"triplets by another name":     {"def ranked(emb, labels):\n    d = torch.cdist(emb, emb)\n    same = labels[:, None] == labels[None]\n    return F.relu(d.masked_fill(~same, 0).amax(1) - d.masked_fill(same, 9).amin(1) + .2).mean()", "loss = ranked(out, y)" + divided, "with each other (train.py:12)"},
		"pairs in the loop":            {"", "z = F.normalize(out, dim=1)\nsim = z @ z.t() / .1\nloss = F.cross_entropy(sim, y)" + divided, "with each other (train.py:16)"},
		"the batch with its pair":      {"", "sim = torch.matmul(out, model(y).T)\nloss = F.cross_entropy(sim, torch.arange(len(x)))" + divided, "with each other (train.py:1"},
		"labels that count":            {"", "labels = torch.arange(out.shape[0])\nloss = F.cross_entropy(score(out, y), labels)" + divided, "with each other (train.py:16)"},
		"a model that makes pairs":     {"class Towers(nn.Module):\n    def forward(self, x, y):\n        a = self.image(x)\n        b = self.text(y)\n        logits = self.scale.exp() * a @ b.t()\n        return logits\ntowers = Towers()", "logits = towers(x, y)\nloss = F.cross_entropy(logits, target)" + divided, "with each other (train.py:15)"},
		"each against each":            {"def spread(z):\n    return (z.unsqueeze(1) - z.unsqueeze(0)).pow(2).mean()", "loss = F.mse_loss(out, y) + spread(out)" + divided, "with each other (train.py:12)"},
		"features of all ranks":        {"def far(z):\n    every = torch.cat(GatherLayer.apply(z))\n    return F.cross_entropy(z, every)", "loss = far(out)" + divided, "with each other (train.py:12)"},
		"a queue of MoCo":              {"class MoCo(nn.Module):\n    def forward(self, x):\n        k = self.key(x)\n        l = torch.einsum('nc,ck->nk', [self.q(x), self.queue.clone().detach()])\n        self.enqueue(k)\n        return l\n    def enqueue(self, keys):\n        self.queue[:, :8] = keys.T\nmoco = MoCo()", "loss = F.cross_entropy(moco(x), y)" + divided, "each micro batch updates what later ones use (train.py:18: self.queue[:, :8] = keys.T)"},
		"a queue in the loop":          {"queue = torch.zeros(64, 4)", "loss = F.mse_loss(out, y)\nqueue = torch.cat([queue, out.detach()])[-64:]" + divided, "each micro batch updates what later ones use (train.py:16"},
		"a moving average":             {"", "loss = F.mse_loss(out, y)" + divided + "\nfor p, q in zip(ema.parameters(), model.parameters()):\n    p.data.mul_(0.9).add_(q.data, alpha=0.1)", "each micro batch updates what later ones use (train.py:17: for (p, q) in zip("},
		"a moving average, called":     {"", "loss = F.mse_loss(out, y)" + divided + "\nmodel_ema.update(model)", "each micro batch updates what later ones use (train.py:17: model_ema.update(model))"},
		"a centre of outputs":          {"class DINO(nn.Module):\n    def forward(self, s, t):\n        self.center = self.center * .9 + t.mean(dim=0) * .1\n        return F.mse_loss(s, t - self.center)\ndino = DINO()", "loss = dino(out, y)" + divided, "each micro batch updates what later ones use (train.py:13"},
		"memory that the loss reads":   {"centers = torch.zeros(4, 4)", "loss = (out - centers[y]).pow(2).mean()" + divided + "\ncenters[y] += 0.1 * (out.detach() - centers[y])", "each micro batch updates what later ones use (train.py:17"},
		"gradients cleared":            {"", "optimizer.zero_grad()\nloss = F.mse_loss(out, y)" + divided, "optimizer.zero_grad() changes the gradients of each micro batch (train.py:15)"},
		"gradients clipped":            {"", "loss = F.mse_loss(out, y)" + divided + "\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)", "changes the gradients of each micro batch (train.py:17)"},
		"gradients divided":            {"", "loss = F.mse_loss(out, y)" + divided + "\nif (i + 1) % args.accum == 0:\n    for p in model.parameters():\n        p.grad /= args.accum", "the gradients are divided by --accum more than once (train.py:16)"},
		"a part left undivided":        {"", "loss = F.mse_loss(out, y) / args.accum\nloss = loss + F.l1_loss(out, y)\nloss.backward()", "a part of the loss is not divided by --accum (train.py:17)"},
		"a penalty left undivided":     {"", "loss = F.mse_loss(out, y) / args.accum + 1e-4 * sum(p.norm() for p in model.parameters())\nloss.backward()", "a part of the loss is not divided by --accum (train.py:16)"},
		"a second loss left undivided": {"", "(1e-4 * sum(p.pow(2).sum() for p in model.parameters())).backward()\nloss = F.mse_loss(out, y)" + divided, "a part of the loss is not divided by --accum (train.py:15)"},
		"two optimizers":               {"", "d = F.mse_loss(out, y)\nd.backward()\nopt_d.step()\nloss = F.l1_loss(out, y)" + divided, "two optimizers make steps in one loop, as for a GAN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, map[string]string{"train.py": trains(test.before, test.loss)})
			got := s.summary(strategy.MicroBatchSize)
			if sums := s.summary(strategy.GradientAccumulationSteps); !strings.Contains(got, "!") {
				got = sums
			}
			if !strings.Contains(got, test.want) || !strings.Contains(got, " ! ") && !strings.Contains(got, " ? ") {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestEqualMicroBatches: a micro batch that only looks unequal is offered.
func TestEqualMicroBatches(t *testing.T) {
	const divided = "\n(loss / args.accum).backward()"
	for name, test := range map[string]struct{ before, loss string }{
		"the window of SSIM": {"from math import exp\ndef gaussian(size):\n    line = torch.Tensor([exp(-(i - size // 2) ** 2) for i in range(size)])\n    return line / line.sum()\ndef create(size, channel):\n    line = gaussian(size).unsqueeze(1)\n    window = line.mm(line.t()).unsqueeze(0)\n    return window.expand(channel, 1, size, size)\nclass SSIM(nn.Module):\n    def __init__(self, window_size=11):\n        super().__init__()\n        self.window_size = window_size\n    def forward(self, a, b):\n        (_, channel, _, _) = a.size()\n        w = create(self.window_size, channel)\n        return F.mse_loss(F.conv2d(a, w), F.conv2d(b, w))\nssim = SSIM()", "loss = ssim(out, y)" + divided},
		"boxes matched by image": {"def matched(boxes, targets):\n    sizes = [len(v) for v in targets]\n    cost = torch.cdist(boxes, targets)\n    return sum(c[i].mean() for i, c in enumerate(cost.split(sizes, -1))) / len(boxes)",
			"loss = matched(out, y)" + divided},
		"attention":                    {"class Net(nn.Module):\n    def forward(self, x):\n        q, k, v = self.qkv(x).chunk(3, -1)\n        a = (q @ k.transpose(-2, -1)).softmax(-1)\n        return self.head(a @ v)\nnet = Net()", "loss = F.cross_entropy(net(x), y)" + divided},
		"attention by letters":         {"class Net(nn.Module):\n    def forward(self, q, k):\n        return torch.einsum('bhid,bhjd->bhij', q, k)\nnet = Net()", "loss = F.cross_entropy(net(x, x), y)" + divided},
		"a weight":                     {"class Net(nn.Module):\n    def forward(self, x):\n        return x @ self.weight.T\nnet = Net()", "loss = F.cross_entropy(net(x), y)" + divided},
		"the weight of an embedding":   {"class Net(nn.Module):\n    def forward(self, x):\n        words = self.encoder.get_input_embeddings().weight\n        return x @ words.T\nnet = Net()", "loss = F.cross_entropy(net(x), y)" + divided},
		"a product in a layer":         {"class Net(nn.Module):\n    def forward(self, x):\n        g = torch.mm(x, x.t())\n        return self.head(g)\nnet = Net()", "loss = F.cross_entropy(net(x), y)" + divided},
		"positions":                    {"class Net(nn.Module):\n    def forward(self, x):\n        t = torch.arange(x.shape[1])\n        f = torch.einsum('i,j->ij', t, self.inv_freq)\n        d = t[None] - t[:, None]\n        return self.head(x, f, d)\nnet = Net()", "loss = F.cross_entropy(net(x), y)" + divided},
		"places that are picked":       {"", "loss = -out[torch.arange(len(x)), y].mean()" + divided},
		"statistics of a sample":       {"", "mean = y.mean(dim=-1, keepdim=True)\nvar = y.var(dim=-1, keepdim=True)\nloss = F.mse_loss(out, (y - mean) / var)" + divided},
		"a gain of a layer":            {"class Net(nn.Module):\n    def forward(self, x):\n        return self.act(x).mul_(self.gain)\nnet = Net()", "loss = F.mse_loss(net(x), y)" + divided},
		"a cache of positions":         {"class Net(nn.Module):\n    def forward(self, x):\n        self.cos_cached = self.cos(x)\n        self.step += 1\n        return self.head(x)\nnet = Net()", "loss = F.mse_loss(net(x), y)" + divided},
		"an average that is logged":    {"", "loss = F.mse_loss(out, y)\nrunning_loss = 0.9 * running_loss + 0.1 * loss.item()" + divided},
		"a moving average once a step": {"", "loss = F.mse_loss(out, y)" + divided + "\nif (i + 1) % args.accum == 0:\n    model_ema.update(model)"},
		"two optimizers of one loss":   {"", "loss = F.mse_loss(out, y)" + divided + "\nif (i + 1) % args.accum == 0:\n    optimizer_2.step()"},
		"a clip once a step":           {"", "loss = F.mse_loss(out, y)" + divided + "\nif (i + 1) % args.accum == 0:\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)"},
		"labels that are masked":       {"", "y[y == 0] = 1\nloss = F.mse_loss(out, y)" + divided},
		"counts that nothing reads":    {"seen = torch.zeros(4)", "loss = F.mse_loss(out, y)" + divided + "\nseen[y] += 1"},
		"triplets that are given":      {"", "loss = F.triplet_margin_loss(out, model(y), model(x))" + divided},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, map[string]string{"train.py": trains(test.before, test.loss)})
			for k, want := range map[strategy.Knob]string{strategy.MicroBatchSize: "--batch-size", strategy.GradientAccumulationSteps: "--accum"} {
				if got := s.summary(k); got != want {
					t.Errorf("%s is %s", k, got)
				}
			}
		})
	}
}

// TestLoopsOverAGivenNumberOfSteps: a loop that ends after a number of micro batches makes fewer steps of the optimizer
// with more accumulation, however the number is written.
func TestLoopsOverAGivenNumberOfSteps(t *testing.T) {
	for loop, test := range map[string]string{
		"for i in range(args.workers):":                   "(i + 1) % args.accum == 0",
		"for i in range(1, args.workers + 1):":            "i % args.accum == 0",
		"for i in range(1, 1 + args.workers):":            "i % args.accum == 0",
		"for i in tqdm(range(1, args.workers + 1)):":      "i % args.accum == 0",
		"i = 0\nwhile i < args.workers:\n    i += 1":      "i % args.accum == 0",
		"i = 0\nwhile i <= args.workers - 1:\n    i += 1": "i % args.accum == 0",
	} {
		script := head + "import torch.nn.functional as F\nmodel = torch.nn.Linear(4, 4)\nbatches = iter(DataLoader(data, batch_size=args.batch_size))\n" + loop +
			"\n    x = next(batches)\n    loss = F.mse_loss(model(x), x) / args.accum\n    loss.backward()\n    if " + test + ":\n        optimizer.step()\n        optimizer.zero_grad()\n"
		s := decided(t, one(script))
		if got := s.summary(strategy.GradientAccumulationSteps); !strings.Contains(got, "--workers counts micro batches") {
			t.Errorf("%s: %s", loop, got)
		}
	}
}

// The function that ignite calls for each micro batch is read like a loop over them.
func TestUpdateOfAnEngine(t *testing.T) {
	script := head + "import torch.nn.functional as F\nmodel = torch.nn.Linear(4, 4)\ndef update(engine, batch):\n    loss = F.mse_loss(model(batch), batch) / args.accum\n    loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    if engine.state.iteration % args.accum == 0:\n        optimizer.step()\n        optimizer.zero_grad()\nEngine(update).run(DataLoader(data, batch_size=args.batch_size))\n"
	s := decided(t, map[string]string{"train.py": script})
	if got := s.summary(strategy.GradientAccumulationSteps); !strings.Contains(got, "clip_grad_norm_() changes the gradients of each micro batch") {
		t.Error(got)
	}
}

// A loop over offsets counts samples, not micro batches.
func TestLoopOverOffsetsCountsSamples(t *testing.T) {
	loop := func(each, test string) string {
		return head + "import torch.nn.functional as F\nmodel = torch.nn.Linear(4, 4)\nfor " + each + ":\n    loss = F.mse_loss(model(data[i : i + args.batch_size]), data) / args.accum\n    loss.backward()\n    if " + test + ":\n        optimizer.step()\n        optimizer.zero_grad()\n"
	}
	for name, test := range map[string]struct{ each, test, want string }{
		"of samples":        {"i in range(0, len(data), args.batch_size)", "(i + 1) % args.accum == 0", "i counts samples and not micro batches"},
		"made into batches": {"i in range(0, len(data), args.batch_size)", "(i // args.batch_size + 1) % args.accum == 0", ""},
	} {
		s := decided(t, map[string]string{"train.py": loop(test.each, test.test)})
		if got := s.summary(strategy.GradientAccumulationSteps); test.want == "" && strings.Contains(got, "counts") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
