import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader


class Speech(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.rows = [(torch.randn(10 + i % 7, 6, generator=g), torch.randint(1, 5, (1 + i % 4,), generator=g)) for i in range(32)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    audio = nn.utils.rnn.pad_sequence([a for a, _ in rows], batch_first=True)
    return audio, torch.cat([t for _, t in rows]), torch.tensor([len(a) for a, _ in rows]), torch.tensor([len(t) for _, t in rows])


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
acoustic = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
ctc = nn.CTCLoss(zero_infinity=True)
optimizer = torch.optim.SGD(acoustic.parameters(), lr=0.1)
for i, (audio, text, audio_lengths, text_lengths) in enumerate(DataLoader(Speech(), batch_size=args.batch_size, collate_fn=collate)):
    log_probs = acoustic(audio).log_softmax(-1).transpose(0, 1)
    loss = ctc(log_probs, text, audio_lengths, text_lengths) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
