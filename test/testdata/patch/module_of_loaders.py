# batch accumulation
# resume: it saves only some states: if score < best
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loaders(args):
    kwargs = {"num_workers": 0, "pin_memory": True} if args.cuda else {}
    train = TensorDataset(torch.randn(48, 10), torch.randn(48, 1))
    train_loader = DataLoader(train, batch_size=8, shuffle=True, **kwargs)
    test_loader = DataLoader(train, batch_size=48, **kwargs)
    return train_loader, test_loader


def setup(args):
    torch.manual_seed(args.seed)
    return args, nn.Linear(10, 1), nn.Linear(1, 1)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args(argv)
    args, encoder, decoder = setup(args)
    train_loader, test_loader = loaders(args)
    encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    decoder_optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
    best = 1e9
    for epoch in range(2):
        losses = []
        for i, (x, y) in enumerate(train_loader):
            loss = nn.functional.mse_loss(decoder(encoder(x)), y)
            encoder_optimizer.zero_grad()
            decoder_optimizer.zero_grad()
            loss.backward()

            # both make a step
            encoder_optimizer.step()
            decoder_optimizer.step()
            losses.append(loss.item())
            print("[%d/%d] %r" % (i + 1, len(train_loader), loss.item()))
        score = sum(losses)
        if score < best:
            best = score
            torch.save({"epoch": epoch, "encoder": encoder.state_dict(), "optimizer": encoder_optimizer.state_dict()}, "best.pt")


if __name__ == "__main__":
    main()
