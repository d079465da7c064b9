import math

import torch
from torch import nn


class SinusoidalPosition(nn.Module):
    def __init__(self, d_model: int, max_len: int = 4096):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class Tagger(nn.Module):
    """Per-token tagger over documents padded to the longest of the batch."""

    def __init__(self, vocab: int, tags: int, d_model=96, heads=4, layers=4, dropout=0.1, pad=0):
        super().__init__()
        self.pad = pad
        self.emb = nn.Embedding(vocab, d_model, padding_idx=pad)
        self.pos = SinusoidalPosition(d_model)
        self.drop = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(d_model, heads, 4 * d_model, dropout, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.head = nn.Linear(d_model, tags)

    def forward(self, ids):
        x = self.drop(self.pos(self.emb(ids) * math.sqrt(self.emb.embedding_dim)))
        x = self.encoder(x, src_key_padding_mask=ids.eq(self.pad))
        return self.head(x)
