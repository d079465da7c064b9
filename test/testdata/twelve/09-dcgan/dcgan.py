import os
import random

import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data

class Opt: pass
opt = Opt()
opt.batchSize = 120
opt.imageSize = 64
opt.nz = 64
opt.ngf = 16
opt.ndf = 16
opt.niter = 2
opt.lr = 0.0002
opt.beta1 = 0.5
opt.n_images = 600
opt.outf = "out"
opt.manualSeed = 999

os.makedirs(opt.outf, exist_ok=True)
random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Rings(torch.utils.data.Dataset):
    def __init__(self, n, size):
        g = torch.Generator().manual_seed(opt.manualSeed)
        self.c = torch.rand(n, 2, generator=g) * 0.6 - 0.3
        self.r = torch.rand(n, generator=g) * 0.4 + 0.3
        self.rgb = torch.rand(n, 3, generator=g) * 2 - 1
        a = torch.linspace(-1, 1, size)
        self.yy, self.xx = a[:, None], a[None, :]

    def __len__(self):
        return len(self.r)

    def __getitem__(self, i):
        d = ((self.yy - self.c[i, 0]) ** 2 + (self.xx - self.c[i, 1]) ** 2).sqrt()
        ring = torch.exp(-((d - self.r[i]) / 0.1) ** 2)
        return (ring[None] * (self.rgb[i][:, None, None] + 1) - 1).clamp(-1, 1)


dataloader = torch.utils.data.DataLoader(Rings(opt.n_images, opt.imageSize),
                                         batch_size=opt.batchSize, shuffle=True, num_workers=0)


# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 8),
            nn.ReLU(),
            # 4 x 4
            nn.ConvTranspose2d(ngf * 8, ngf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(),
            # 8 x 8
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(),
            # 16 x 16
            nn.Upsample(scale_factor=2),
            nn.Conv2d(ngf * 2, ngf, 3, 1, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(),
            # 32 x 32
            nn.Upsample(scale_factor=2),
            nn.Conv2d(ngf, ngf, 3, 1, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(),
            # 64 x 64
            nn.Conv2d(ngf, 3, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 3, 1, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.1),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 4),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 4, ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 4),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 4, 1, 8, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator(opt.nz, opt.ngf).to(device)
netG.apply(weights_init)
netD = Discriminator(opt.ndf).to(device)
netD.apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(16, opt.nz, 1, 1, device=device)

optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr * 2, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    for i, real in enumerate(dataloader, 0):
        ############################
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        ###########################
        netD.zero_grad()
        real = real.to(device)
        batch_size = real.size(0)
        label = torch.full((batch_size,), 0.9, device=device)  # one-sided smoothing
        output = netD(real)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.sigmoid().mean().item()

        noise = torch.randn(batch_size, opt.nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(0.0)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.sigmoid().mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()

        ############################
        # (2) Update G network: maximize log(D(G(z)))
        ###########################
        netG.zero_grad()
        label.fill_(1.0)
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.sigmoid().mean().item()
        optimizerG.step()

        print("[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f D(G(z)): %.4f / %.4f"
              % (epoch, opt.niter, i, len(dataloader), errD.item(), errG.item(), D_x, D_G_z1, D_G_z2), flush=True)

    netG.eval()
    with torch.no_grad():
        torch.save(netG(fixed_noise).cpu(), "%s/samples_epoch_%03d.pt" % (opt.outf, epoch))
    netG.train()

torch.save({"netG": netG.state_dict(), "netD": netD.state_dict(),
            "optG": optimizerG.state_dict(), "optD": optimizerD.state_dict()}, "%s/dcgan_final.pth" % opt.outf)
