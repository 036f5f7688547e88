"""The voice of `src/model` in PyTorch, layer for layer, on padded batches: [batch, length, channels] and a mask."""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

N_MELS = 80
VOICE_HEAD = 32
TIME_CHANNELS = 128


@dataclasses.dataclass
class Size:
    text_dim: int
    text_layers: int
    text_heads: int
    decoder_dim: int
    decoder_layers: int
    decoder_heads: int
    voice_dim: int
    voice_layers: int = 2
    voice_latents: int = 16
    dropout: float = 0.05


SIZES = {  # as in crates/host/src/config/model.rs, of format 3
    "tiny": Size(192, 3, 3, 256, 4, 4, 128),
    "small": Size(256, 4, 4, 320, 7, 5, 192),
    "normal": Size(320, 6, 5, 512, 6, 8, 256),
    "big": Size(512, 6, 8, 640, 9, 10, 384),
}


def rotary(length, head_dim, device):
    angle = torch.arange(length, device=device)[:, None] * torch.exp(
        torch.arange(head_dim // 2, device=device) * (-math.log(10_000) / (head_dim // 2)))
    return angle.cos(), angle.sin()


def turn(x, table):  # [batch, heads, length, head_dim]
    a, b = x.chunk(2, -1)
    cos, sin = (part.to(x.dtype) for part in table)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), heads

    def forward(self, x, mask, table):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(turn(q, table), turn(k, table), v, attn_mask=mask[:, None, None, :, 0])
        return self.out(y.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    def __init__(self, dim, memory_dim, heads):
        super().__init__()
        self.query, self.key_value = nn.Linear(dim, dim, bias=False), nn.Linear(memory_dim, 2 * dim, bias=False)
        self.out, self.heads = nn.Linear(dim, dim, bias=False), heads

    def forward(self, x, memory):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in (self.query(x), *self.key_value(memory).chunk(2, -1)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Linear(dim, 4 * dim), nn.GELU("tanh"), nn.Linear(4 * dim, dim, bias=False))


class Conv(nn.Conv1d):
    def __init__(self, dim, to, kernel, groups=1):
        super().__init__(dim, to, kernel, padding=kernel // 2, groups=groups)

    def forward(self, x, mask):
        return super().forward((x * mask).transpose(1, 2)).transpose(1, 2)


class VoiceLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.feed_forward = CrossAttention(dim, dim, dim // VOICE_HEAD), FeedForward(dim)

    def forward(self, x, memory=None):
        normal = self.attention_norm(x)
        x = x + self.attention(normal, normal if memory is None else memory)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Reference(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size.voice_dim
        self.strided = nn.ModuleList(nn.Conv1d(n, dim, 5, stride=2, padding=2) for n in (N_MELS, dim))
        self.layers = nn.ModuleList(VoiceLayer(dim) for _ in range(size.voice_layers))
        self.questions = nn.Parameter(torch.randn(size.voice_latents, dim))
        self.rounds = nn.ModuleList(VoiceLayer(dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim)

    def forward(self, reference):
        x = reference.transpose(1, 2)
        for conv in self.strided:
            x = F.gelu(conv(x), approximate="tanh")
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        answers = self.questions.expand(len(x), -1, -1)
        for layer in self.rounds:
            answers = layer(answers, x)
        return self.norm(answers)


class TextBlock(nn.Module):
    def __init__(self, size, index):
        super().__init__()
        dim = size.text_dim
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, size.text_heads)
        self.hears = index % 2 == 0
        if self.hears:
            self.voice_norm, self.voice = nn.LayerNorm(dim), CrossAttention(dim, size.voice_dim, size.text_heads)
        self.widen, self.narrow = Conv(dim, 4 * dim, 3), Conv(4 * dim, dim, 3)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x, mask, table, latents):
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, table))
        if self.hears:
            x = x + self.dropout(self.voice(self.voice_norm(x), latents))
        return x + self.dropout(self.narrow(self.widen(self.feed_forward_norm(x), mask).relu(), mask))


class Encoder(nn.Module):
    def __init__(self, size, vocab, languages):
        super().__init__()
        dim = size.text_dim
        self.embedding, self.languages = nn.Embedding(vocab, dim), nn.Embedding(languages, dim)
        self.voice = nn.Linear(size.voice_dim, dim)
        self.prenet = nn.ModuleList(Conv(dim, dim, 5) for _ in range(2))
        self.prenet_norm = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.blocks = nn.ModuleList(TextBlock(size, i) for i in range(size.text_layers))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, N_MELS + size.decoder_dim)
        self.dropout, self.head_dim = nn.Dropout(size.dropout), dim // size.text_heads

    def forward(self, tokens, languages, latents, mask):
        known = self.languages(languages) + self.voice(latents.mean(1))
        x = self.embedding(tokens) + known[:, None]
        for conv, norm in zip(self.prenet, self.prenet_norm):
            x = x + self.dropout(norm(conv(x, mask).relu()))
        table = rotary(tokens.shape[1], self.head_dim, tokens.device)
        for block in self.blocks:
            x = block(x, mask, table, latents)
        hidden = self.norm(x)
        return hidden, self.out(hidden)


class Durations(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size.text_dim
        self.voice = nn.Linear(size.voice_dim, dim)
        self.convs = nn.ModuleList(Conv(dim, dim, 3) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.out, self.dropout = nn.Linear(dim, 1), nn.Dropout(size.dropout)

    def forward(self, hidden, latents, mask):
        x = hidden.detach() + self.voice(latents.mean(1))[:, None]
        for conv, norm in zip(self.convs, self.norms):
            x = self.dropout(norm(conv(x, mask).relu()))
        return self.out(x).float()


def modulated(x, table):
    scale, shift = table[:, None].chunk(2, -1)
    return F.layer_norm(x, x.shape[-1:]) * (scale + 1) + shift


class Local(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.depthwise, self.feed_forward = Conv(dim, dim, kernel, groups=dim), FeedForward(dim)

    def forward(self, x, scale_shift, gate, mask):
        return x + self.feed_forward(self.depthwise(modulated(x, scale_shift), mask)) * gate[:, None]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.local = Attention(dim, heads), Local(dim, 5)

    def forward(self, x, tables, mask, table):
        x = x + self.attention(modulated(x, tables[0]), mask, table) * tables[1][:, None]
        return self.local(x, tables[2], tables[3], mask)


class Decoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim, inner, condition = size.decoder_dim, size.decoder_layers - 2, size.decoder_dim // 2
        self.sizes = [width * dim for width in [2, 1] * (2 + 2 * inner) + [2]]
        self.noisy = nn.Linear(N_MELS, dim)
        self.time_in, self.time_out = nn.Linear(TIME_CHANNELS, condition), nn.Linear(condition, condition)
        self.voice = nn.Linear(size.voice_dim, condition)
        self.modulation = nn.Linear(condition, sum(self.sizes))
        self.first, self.last = Local(dim, 7), Local(dim, 7)
        self.down, self.up = nn.Linear(2 * dim, dim), nn.Linear(dim, 2 * dim)
        self.blocks = nn.ModuleList(Block(dim, size.decoder_heads) for _ in range(inner))
        self.output, self.head_dim = nn.Linear(dim, N_MELS), dim // size.decoder_heads

    def forward(self, noisy, content, latents, times, keep, mask):
        half = torch.arange(TIME_CHANNELS // 2, device=times.device)
        angle = times[:, None] * 1000 * torch.exp(half * (-math.log(10_000) / (TIME_CHANNELS // 2 - 1)))
        time = torch.cat([angle.sin(), angle.cos()], 1)
        known = self.time_out(F.silu(self.time_in(time))) + self.voice(latents.mean(1)) * keep[:, None]
        tables = self.modulation(F.silu(known)).split(self.sizes, 1)
        x = self.noisy(noisy) + content * keep[:, None, None]
        outer = self.first(x, tables[0], tables[1], mask)
        x = self.down((outer * mask).unflatten(1, (-1, 2)).flatten(2))
        halved, table = mask[:, ::2], rotary(x.shape[1], self.head_dim, x.device)
        for i, block in enumerate(self.blocks):
            x = block(x, tables[4 + 4 * i:8 + 4 * i], halved, table)
        x = outer + self.up(x).unflatten(2, (2, -1)).flatten(1, 2)
        x = self.last(x, tables[2], tables[3], mask)
        return self.output(modulated(x, tables[-1])).float()


class Voice(nn.Module):
    def __init__(self, size, vocab=200, languages=1):
        super().__init__()
        self.reference, self.encoder = Reference(size), Encoder(size, vocab, languages)
        self.durations, self.decoder = Durations(size), Decoder(size)

    def encode(self, batch):
        """Before the search: latents, hidden states, and the table of means and content."""
        latents = self.reference(batch.reference)
        return latents, *self.encoder(batch.tokens, batch.languages, latents, batch.text_mask)

    def losses(self, batch, latents, hidden, table, token_of_frame):
        """After the search. `token_of_frame`: [batch, frames]."""
        frame_mask, text_mask = batch.frame_mask, batch.text_mask
        laid = table.gather(1, token_of_frame[..., None].expand(-1, -1, table.shape[2]))
        mean, content = laid.split([N_MELS, table.shape[2] - N_MELS], 2)
        count = frame_mask.sum()
        prior = ((batch.mel - mean.float()).square() * frame_mask).sum() / (2 * N_MELS * count)
        lasted = torch.zeros_like(text_mask, dtype=torch.float32).squeeze(2).scatter_add(
            1, token_of_frame, frame_mask.float().squeeze(2)).unsqueeze(2)
        predicted = self.durations(hidden, latents, text_mask)
        surprise = lasted * (lasted.clamp(min=1).log() - predicted) - lasted + predicted.exp()
        duration = (surprise * text_mask).sum() / count
        utterances = len(batch.mel)
        even = torch.arange(utterances, device=table.device) / utterances
        times = (even + torch.rand(1, device=table.device)).remainder(1)
        keep = (torch.rand(utterances, device=table.device) >= 0.1).float()
        noise, at = torch.randn_like(batch.mel), times[:, None, None]
        noisy = (1 - at) * noise + at * batch.mel
        guess = self.decoder(noisy, content, latents, times, keep, frame_mask)
        flow = ((guess - (batch.mel - noise)).square() * frame_mask).sum() / (N_MELS * count)
        return prior + duration + flow
