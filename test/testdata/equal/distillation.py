import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="distil a teacher")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--temperature", type=float, default=2.0)
args = parser.parse_args()
torch.manual_seed(0)
teacher, student = nn.Linear(10, 5).eval(), nn.Linear(10, 5)
T = args.temperature
optimizer = torch.optim.SGD(student.parameters(), lr=0.3)
for i, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(40, 10), torch.randint(5, (40,))), batch_size=args.batch_size)):
    with torch.no_grad():
        soft = F.softmax(teacher(x) / T, dim=-1)
    logits = student(x)
    kd = F.kl_div(F.log_softmax(logits / T, dim=-1), soft, reduction="batchmean") * T * T
    loss = 0.7 * kd + 0.3 * F.cross_entropy(logits, y)
    loss = loss / args.accumulation
    loss.backward()
    if (i + 1) % args.accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
