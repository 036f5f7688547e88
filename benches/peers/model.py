"""The voice of `src/model` (format 4) in PyTorch, layer for layer and name for name: a checkpoint's `model.safetensors` fits.
On padded batches or on packed ones, as their axes say (`axis.py`)."""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

N_MELS = 80
TIME_CHANNELS = 128
SIGMA_MIN = 1e-4
CONTEXT_SHARE, LEAST_SHARE, WITHOUT_CONTENT, CONDITION_DROPOUT = 0.7, 0.1, 0.5, 0.1


@dataclasses.dataclass
class Size:
    text_dim: int
    text_layers: int
    text_heads: int
    decoder_dim: int
    decoder_layers: int
    decoder_heads: int
    dropout: float = 0.1


SIZES = {  # as in crates/host/src/config/model.rs
    "tiny": Size(192, 3, 3, 256, 4, 4),
    "small": Size(256, 4, 4, 320, 7, 5),
    "normal": Size(320, 6, 5, 512, 6, 8),
    "big": Size(512, 6, 8, 640, 9, 10),
}


@dataclasses.dataclass
class Ways:
    """How convolutions are computed: `rows` are shifted rows, for `dense` ones side by side in one product; `cudnn` is what
    PyTorch's own convolution calls."""
    dense: str = "rows"
    depthwise: str = "rows"


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor     # of the text axis
    languages: torch.Tensor  # [utterances]
    mel: torch.Tensor        # [frames, N_MELS] of the frame axis, normalised
    text: object
    frames: object


@dataclasses.dataclass
class Draw:
    """What chance decides of a step."""
    times: torch.Tensor   # [utterances]
    chance: torch.Tensor  # [6, utterances], uniform
    noise: torch.Tensor   # as the mel frames

    @staticmethod
    def new(batch):
        utterances, device = len(batch.languages), batch.mel.device
        even = torch.arange(utterances, device=device) / utterances
        times = (even + torch.rand(1, device=device)).remainder(1)
        return Draw(times, torch.rand(6, utterances, device=device), torch.randn_like(batch.mel))


def rotary(position, head_dim):
    """`[rows, 1, head_dim / 2]`, for all heads."""
    half = torch.arange(head_dim // 2, device=position.device)
    angle = position[:, None] * torch.exp(half * (-math.log(10_000) / (head_dim // 2)))
    return angle.cos()[:, None], angle.sin()[:, None]


def turn(x, table):  # [..., rows, heads, head_dim]
    a, b = x.chunk(2, -1)
    cos, sin = (part.to(x.dtype) for part in table)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), heads

    def forward(self, x, attend, table):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return self.out(attend(turn(q, table), turn(k, table), v).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return self.narrow(F.gelu(self.widen(x), approximate="tanh"))


class Norm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x).to(x.dtype)  # autocast would leave it in f32


def shifted(x, kernel):
    """The rows of `[..., rows, channels]` that each tap of a kernel sees, with silence beyond the ends."""
    wide, length = F.pad(x, (0, 0, kernel // 2, kernel // 2)), x.shape[-2]
    return [wide.narrow(-2, tap, length) for tap in range(kernel)]


class Conv(nn.Module):
    """Along the rows. Padding and gaps are silence."""

    def __init__(self, dim, to, kernel, way):
        super().__init__()
        bound = (dim * kernel) ** -0.5
        self.weight, self.bias = nn.Parameter(torch.empty(to, dim, kernel).uniform_(-bound, bound)), nn.Parameter(torch.zeros(to))
        self.kernel, self.way = kernel, way

    def forward(self, x, mask):
        x = x * mask.to(x.dtype)
        if self.way == "rows":
            return F.linear(torch.cat(shifted(x, self.kernel), -1), self.weight.transpose(1, 2).flatten(1), self.bias)
        # Rows with their channels side by side are "channels last" already: nothing is copied.
        laid = (x if x.dim() == 3 else x[None]).transpose(1, 2)[:, :, None]
        weight = self.weight[:, :, None].contiguous(memory_format=torch.channels_last)
        y = F.conv2d(laid, weight, self.bias, padding=(0, self.kernel // 2))[:, :, 0].transpose(1, 2)
        return y if x.dim() == 3 else y[0]


class Depthwise(nn.Module):
    def __init__(self, dim, kernel, way):
        super().__init__()
        bound = kernel ** -0.5
        self.weight, self.bias = nn.Parameter(torch.empty(dim, 1, kernel).uniform_(-bound, bound)), nn.Parameter(torch.zeros(dim))
        self.kernel, self.way = kernel, way

    def forward(self, x, mask):
        x = x * mask
        if self.way == "rows":
            taps = zip(shifted(x, self.kernel), self.weight.squeeze(1).unbind(1))
            return sum((rows * weight for rows, weight in taps), self.bias)
        y = F.conv1d(x.transpose(-1, -2), self.weight, self.bias, padding=self.kernel // 2, groups=len(self.bias))
        return y.transpose(-1, -2)


class TextBlock(nn.Module):
    def __init__(self, size, ways):
        super().__init__()
        dim = size.text_dim
        self.attention_norm, self.feed_forward_norm = Norm(dim), Norm(dim)
        self.attention = Attention(dim, size.text_heads)
        self.widen, self.narrow = Conv(dim, 4 * dim, 3, ways.dense), Conv(4 * dim, dim, 3, ways.dense)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x, mask, attend, table):
        x = x + self.dropout(self.attention(self.attention_norm(x), attend, table))
        return x + self.dropout(self.narrow(self.widen(self.feed_forward_norm(x), mask).relu(), mask))


class Languages(nn.Module):
    def __init__(self, languages, dim):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(languages, dim) * dim**-0.5)


class Encoder(nn.Module):
    def __init__(self, size, ways, vocab, languages):
        super().__init__()
        dim = size.text_dim
        self.embedding, self.languages = nn.Parameter(torch.randn(vocab, dim) * dim**-0.5), Languages(languages, dim)
        self.prenet = nn.ModuleList(Conv(dim, dim, 5, ways.dense) for _ in range(2))
        self.prenet_norm = nn.ModuleList(Norm(dim) for _ in range(2))
        self.block = nn.ModuleList(TextBlock(size, ways) for _ in range(size.text_layers))
        self.norm, self.out = Norm(dim), nn.Linear(dim, N_MELS + size.decoder_dim)
        self.dropout, self.head_dim = nn.Dropout(size.dropout), dim // size.text_heads

    def forward(self, tokens, languages, axis, kind):
        scale = self.embedding.shape[1] ** 0.5
        spoken = (F.embedding(languages, self.languages.embedding) * scale).to(kind)
        x = (F.embedding(tokens, self.embedding) * scale).to(kind) + axis.spread(spoken)
        for conv, norm in zip(self.prenet, self.prenet_norm):
            x = x + self.dropout(norm(conv(x, axis.mask).relu()))
        table, attend = rotary(axis.position, self.head_dim), axis.attention()
        for block in self.block:
            x = block(x, axis.mask, attend, table)
        hidden = self.norm(x)
        return hidden, self.out(hidden)


class Durations(nn.Module):
    def __init__(self, size, ways):
        super().__init__()
        dim = size.text_dim
        self.conv = nn.ModuleList(Conv(dim, dim, 3, ways.dense) for _ in range(2))
        self.norm = nn.ModuleList(Norm(dim) for _ in range(2))
        self.out, self.dropout = nn.Linear(dim, 1), nn.Dropout(size.dropout)

    def forward(self, hidden, mask):
        x = hidden.detach()
        for conv, norm in zip(self.conv, self.norm):
            x = self.dropout(norm(conv(x, mask).relu()))
        return self.out(x).float()


def modulated(x, table, axis):
    scale, shift = axis.spread(table).chunk(2, -1)
    return (F.layer_norm(x, x.shape[-1:]) * (scale + 1) + shift).to(x.dtype)


class Local(nn.Module):
    def __init__(self, dim, kernel, ways):
        super().__init__()
        self.depthwise, self.feed_forward = Depthwise(dim, kernel, ways.depthwise), FeedForward(dim)

    def forward(self, x, tables, axis):
        near = self.depthwise(modulated(x, tables[0], axis), axis.mask)
        return x + self.feed_forward(near) * axis.spread(tables[1])


class Block(Local):
    def __init__(self, size, ways):
        super().__init__(size.decoder_dim, 5, ways)
        self.attention = Attention(size.decoder_dim, size.decoder_heads)

    def forward(self, x, tables, axis, attend, table):
        x = x + self.attention(modulated(x, tables[0], axis), attend, table) * axis.spread(tables[1])
        return super().forward(x, tables[2:], axis)


class Decoder(nn.Module):
    def __init__(self, size, ways):
        super().__init__()
        dim, inner, condition = size.decoder_dim, size.decoder_layers - 2, size.decoder_dim // 2
        self.sizes = [width * dim for width in [2, 1] * (2 + 2 * inner) + [2]]
        self.noisy, self.context = nn.Linear(N_MELS, dim), nn.Linear(N_MELS, dim)
        self.time_in, self.time_out = nn.Linear(TIME_CHANNELS, condition), nn.Linear(condition, condition)
        self.modulation = nn.Linear(condition, sum(self.sizes))
        self.first, self.last = Local(dim, 7, ways), Local(dim, 7, ways)
        self.down, self.up = nn.Linear(2 * dim, dim), nn.Linear(dim, 2 * dim)
        self.block = nn.ModuleList(Block(size, ways) for _ in range(inner))
        self.output, self.head_dim = nn.Linear(dim, N_MELS), dim // size.decoder_heads
        for layer in (self.modulation, self.output):
            nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)

    def tables(self, times):
        half = torch.arange(TIME_CHANNELS // 2, device=times.device)
        angle = times[:, None] * 1000 * torch.exp(half * (-math.log(10_000) / (TIME_CHANNELS // 2 - 1)))
        time = F.silu(self.time_in(torch.cat([angle.sin(), angle.cos()], 1)))
        return self.modulation(F.silu(self.time_out(time))).split(self.sizes, 1)

    def forward(self, noisy, content, content_mask, clean, context, times, axis):
        """`context`: 1 on frames that are given clean, in place of noisy ones."""
        tables = self.tables(times)
        x = self.noisy(noisy * (1 - context))
        x = x + content * content_mask.to(x.dtype) + self.context(clean * context) * context.to(x.dtype)
        outer = self.first(x, tables[0:2], axis)
        # An odd utterance's last pair holds one frame of the gap, which must say nothing.
        paired = (outer * axis.mask.to(x.dtype)).unflatten(-2, (-1, 2)).flatten(-2)
        half = axis.half()
        x, table, attend = self.down(paired), rotary(half.position, self.head_dim), half.attention()
        for i, block in enumerate(self.block):
            x = block(x, tables[4 + 4 * i:8 + 4 * i], half, attend, table)
        x = outer + self.up(x).unflatten(-1, (2, -1)).flatten(-3, -2)
        x = self.last(x, tables[2:4], axis)
        return self.output(modulated(x, tables[-1], axis)).float()


def context_masks(chance, axis):
    """Which frames are given clean, and where content is: `src/model/context.rs`."""
    lens = axis.lens.float()
    conditioned = (chance[0] >= CONDITION_DROPOUT).float()
    prompted = conditioned * (chance[4] >= CONDITION_DROPOUT)
    bare = (chance[5] < WITHOUT_CONTENT).float()
    count = ((chance[1] * (CONTEXT_SHARE - LEAST_SHARE) + LEAST_SHARE) * lens).floor().clamp(min=2).minimum((lens - 1).clamp(min=0))
    place, rest = (chance[2] * 4).floor(), lens - count
    anywhere, left = (chance[3] * (rest + 1)).floor().minimum(rest), (chance[3] * count).floor()
    both_ends = (place == 3).float()
    first = (place == 1) * rest + (place == 2) * anywhere + both_ends * left
    end = first + both_ends * rest + (1 - both_ends) * count
    spread = axis.spread(torch.stack([conditioned, first, end, both_ends, prompted, bare], 1))
    conditioned, first, end, both_ends, prompted, bare = spread.split(1, -1)
    position = axis.position[:, None]
    inside = ((position >= first) & (position < end)).float()
    context = (inside - both_ends).abs() * prompted * axis.mask
    return context, conditioned * (1 - context * bare)


def mean_over(values, mask):
    return (values * mask).sum() / (mask.sum().clamp(min=1) * values.shape[-1])


class Voice(nn.Module):
    def __init__(self, size, vocab, languages=1, ways=Ways(), kind=torch.float32):
        super().__init__()
        self.encoder, self.duration, self.decoder = Encoder(size, ways, vocab, languages), Durations(size, ways), Decoder(size, ways)
        self.kind = kind  # of the activations

    def encode(self, batch):
        """Before the search: hidden states, and the table of means and content."""
        return self.encoder(batch.tokens, batch.languages, batch.text, self.kind)

    def losses(self, batch, hidden, table, token_of_frame, draw=None):
        """After the search. `token_of_frame`: index among all rows of the text axis, of every frame."""
        draw, text, frames = draw or Draw.new(batch), batch.text, batch.frames
        # In f32, so that the gradient's additions are f32, too.
        laid = F.embedding(token_of_frame, table.float().flatten(0, -2))
        mean, content = laid.split([N_MELS, table.shape[-1] - N_MELS], -1)
        prior = mean_over((batch.mel - mean).square(), frames.mask) / 2
        lasted = torch.zeros(text.mask.numel(), device=table.device).index_add(0, token_of_frame.flatten(), frames.mask.flatten())
        lasted, predicted = lasted.view(text.mask.shape), self.duration(hidden, text.mask)
        surprise = lasted * (lasted.clamp(min=1).log() - predicted) - lasted + predicted.exp()
        duration = (surprise * text.mask).sum() / lasted.sum().clamp(min=1)
        context, content_mask = context_masks(draw.chance, frames)
        at = frames.spread(draw.times[:, None])
        noisy = (1 - at * (1 - SIGMA_MIN)) * draw.noise + at * batch.mel
        guess = self.decoder(noisy, content.to(self.kind), content_mask, batch.mel, context, draw.times, frames)
        flow = mean_over((guess - (batch.mel - (1 - SIGMA_MIN) * draw.noise)).square(), frames.mask - context)
        return prior + duration + flow
