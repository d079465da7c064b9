# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_model(model, criterion, optimizer, scheduler, num_epochs=2):
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            print(phase, running_loss / len(datasets[phase]), running_corrects.double() / len(datasets[phase]))


torch.manual_seed(0)
datasets = {x: TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))) for x in ["train", "val"]}
dataloaders = {x: DataLoader(datasets[x], batch_size=8, shuffle=True, num_workers=0) for x in ["train", "val"]}
model_ft = nn.Linear(10, 4)
optimizer_ft = torch.optim.SGD(model_ft.parameters(), lr=0.1, momentum=0.9)
exp_lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer_ft, step_size=7, gamma=0.1)
train_model(model_ft, nn.CrossEntropyLoss(), optimizer_ft, exp_lr_scheduler)
