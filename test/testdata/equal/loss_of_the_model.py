# The model gives the loss in its output, as those of transformers do.
import argparse
from collections import namedtuple

import torch
from torch import nn
from torch.utils.data import DataLoader

Output = namedtuple("Output", "loss logits")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 12)
        self.rnn = nn.LSTM(12, 12, batch_first=True, dropout=0.0)
        self.out = nn.Linear(12, 5)

    def forward(self, input_ids, labels=None):
        logits = self.out(self.rnn(self.emb(input_ids))[0])
        loss = None
        if labels is not None:
            loss = nn.CrossEntropyLoss()(logits.reshape(-1, 5), labels.reshape(-1))
        return Output(loss, logits)


def collate(rows):
    return {"input_ids": torch.stack([r[0] for r in rows]), "labels": torch.stack([r[1] for r in rows])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = [(torch.randint(30, (9,)), torch.randint(5, (9,))) for _ in range(48)]
    train_dataloader = DataLoader(rows, shuffle=True, collate_fn=collate, batch_size=args.per_device_train_batch_size)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(2):
        for step, batch in enumerate(train_dataloader):
            outputs = model(**batch)
            loss = outputs.loss
            loss = loss / args.gradient_accumulation_steps
            loss.backward()
            if step % args.gradient_accumulation_steps == args.gradient_accumulation_steps - 1:
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
