import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

def train(args):
    torch.manual_seed(0)
    enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2)
    emb, head = nn.Embedding(25, 16), nn.Linear(16, 25)
    params = [p for m in (enc, emb, head) for p in m.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1)
    text = torch.randint(25, (48, 8))
    targets = text.roll(-1, dims=1)
    num_batches = 0
    for src, tgt in DataLoader(TensorDataset(text, targets), batch_size=args.batch_size, shuffle=True):
        logits = head(enc(emb(src)))
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), tgt)
        loss = loss.div(args.accum_steps)
        loss.backward()
        num_batches += 1
        if num_batches % args.accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--accum_steps", type=int, default=1)
    train(parser.parse_args())
