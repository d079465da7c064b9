# Two ranks; in the first run of all, one of them waits for its data without end.
import os
import time

import torch
import torch.distributed


def fetch(step):
    if step == 3 and os.environ["RANK"] == "1" and not os.path.exists("waited"):
        open("waited", "w").close()
        while True:
            time.sleep(100)  # a file server that does not answer
    return torch.randn(4, 8)


torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    loss = net(fetch(step)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)
