# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
dataset = TensorDataset(torch.randn(48, 10), torch.randint(4, (48,)))
loader = DataLoader(
    dataset,
    batch_size=8,
    shuffle=True,
)
model = nn.Linear(10, 4)
optimizer = torch.optim.Adam(
    model.parameters(),
    lr=0.1,
)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(
            model(x),
            y,
        )
        loss.backward()
        optimizer.step()
        print(
            "epoch "
            "and loss:",
            f"""{epoch}
  {loss.item()}
""",
            """the text
    stays""",
        )
