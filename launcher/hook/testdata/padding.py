# Asks for the padding of batches as a process does that ends. Prints what was known before and after.
import json
import sys

import torch

sys.path.append(sys.argv[1])
from inside.base import process, rank  # noqa: E402
from inside.model import rootcalls  # noqa: E402
from inside.observe import batches, loss  # noqa: E402

rank.start.update(role="rank", told={})
process.state.update(orders={})
net = torch.nn.Embedding(9, 4)
ids, labels = torch.randint(1, 9, (4, 6)), torch.randint(1, 9, (4, 6))
mask = torch.ones(4, 6, dtype=torch.int64)
short, some = mask.clone(), labels.clone()
short[2, 4:] = 0
some[1, 3:] = -100
both = labels.clone()
both[:, :2] = -100
for name, given, want in (
    ("whole", {"ids": ids, "attention_mask": mask}, "yes"), ("padded", {"ids": ids, "attention_mask": short}, "no"),
    ("ignored", {"ids": ids, "labels": some}, "no"), ("prompts", {"ids": ids, "labels": both}, "yes"), ("labels", {"ids": ids, "labels": labels}, "yes"),
):
    process.told.pop("loss", None)
    rootcalls.listeners = [batches.first(net, (), given)]
    before = dict(loss.known())
    asked = batches.question((), given)
    if asked:
        asked()
    print(json.dumps({"batch": name, "want": want, "before": before, "after": loss.known()}))
    batches.leave()
