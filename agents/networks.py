"""Networks that do not care how devices are numbered, nor how many there are.

An :class:`Encoder` embeds every device with the same weights and lets devices see each other
through pooled means and maxima (DeepSets). Heads on top of it make decisions with the structure
that the optimum is known to have:

* :class:`DeadlineHead`: a common drafting deadline, and who drafts until it (corrections);
* :class:`LengthHead`: a length for each device (uploads, or where the structure is to be learned);
* :class:`ModeHead`: uplink or downlink for each rejected device;
* :class:`ShareHead`: bandwidths that let all uploads finish together (Lemma 3), from one number.

A head is a distribution of joint decisions: it can be sampled (`sample`), fitted to a teacher's
decisions (`loss`), and its most likely decision is played (`best`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.features import MAX_LENGTH, NUM_CELL_FEATURES, NUM_DEVICE_FEATURES, Inputs

WIDTH: Final = 64


def _mlp(inputs: int, outputs: int, width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))


class _PairMLP(nn.Sequential):
    """An MLP of each device's vector beside one that all devices of the cell share.

    What the first layer makes of the shared vector is computed once a cell, not once a device.
    """

    def __init__(self, device: int, shared: int, outputs: int, width: int = WIDTH) -> None:
        super().__init__(nn.Linear(device + shared, width), nn.SiLU(), nn.Linear(width, outputs))
        self._device = device

    def forward(self, device: Tensor, shared: Tensor) -> Tensor:  # type: ignore[override]
        """[..., N, K, device] and [..., N, shared] -> [..., N, K, outputs]."""
        first, activation, last = cast("tuple[nn.Linear, nn.SiLU, nn.Linear]", tuple(self))
        weight = first.weight
        own = functional.linear(device, weight[:, : self._device])
        others = functional.linear(shared, weight[:, self._device :], first.bias)
        result: Tensor = last(activation(own + others[..., None, :]))
        return result


class Encoder(nn.Module):
    """Inputs -> an embedding of each device [N, K, W] and of the cell [N, W]."""

    def __init__(self, width: int = WIDTH, blocks: int = 2) -> None:
        super().__init__()
        self.embed = _PairMLP(NUM_DEVICE_FEATURES, NUM_CELL_FEATURES, width, width)
        self.blocks = nn.ModuleList(_PairMLP(width, 2 * width, width, width) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))

    def forward(self, given: Inputs) -> tuple[Tensor, Tensor]:
        """Embeddings of the devices and of the cell."""
        device = self.embed(given.device, given.cell)
        for block, norm in zip(self.blocks, self.norms):
            pooled = torch.cat([device.mean(1), device.amax(1)], dim=-1)
            device = norm(device + block(device, pooled))
        return device, device.mean(1)


def _bernoulli_log_prob(logits: Tensor, chosen: Tensor) -> Tensor:
    return -functional.binary_cross_entropy_with_logits(
        logits, chosen.to(logits.dtype), reduction="none"
    )


class DeadlineHead(nn.Module):
    """A deadline n max_k T_k, and a subset of devices that draft until it.

    The deadline's distribution is a softmax over n; given n each device drafts by its own coin.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.deadline = _mlp(width, MAX_LENGTH + 1)
        self.subset = _PairMLP(width, width + 1, 1)

    def logits(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """Of the deadline's index, [N, gamma_max + 1]."""
        logits: Tensor = self.deadline(encoded[1])
        return logits[:, : given.max_draft_length + 1]

    def subset_logits(self, encoded: tuple[Tensor, Tensor], index: Tensor) -> Tensor:
        """Of each device's drafting, given the deadline's index [N]: [N, K]."""
        device, cell = encoded
        logits: Tensor = self.subset(device, torch.cat([cell, index[:, None] / 10.0], dim=-1))
        return logits[..., 0]

    def lengths(self, given: Inputs, index: Tensor, drafts: Tensor) -> Tensor:
        """What that means for each device, [N, K]."""
        deadline_s = index[:, None] * given.token_s.amax(1, keepdim=True)
        most = torch.floor(deadline_s / given.token_s * (1.0 + 1e-6))
        return drafts * most.clamp_max(given.max_draft_length).to(torch.int64)

    def best(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """The most likely lengths, [N, K]."""
        index = self.logits(encoded, given).argmax(-1)
        drafts = (self.subset_logits(encoded, index) > 0).to(torch.int64)
        return self.lengths(given, index, drafts)

    def sample(self, encoded: tuple[Tensor, Tensor], given: Inputs, count: int) -> tuple[Any, ...]:
        """Draw `count` joint decisions a cell.

        Returns:
            Lengths [count, N, K], log-probabilities [count, N], mean entropies [N].
        """
        deadline = torch.distributions.Categorical(logits=self.logits(encoded, given))
        lengths, scores, entropies = [], [], []
        for _ in range(count):
            index = deadline.sample()
            logits = self.subset_logits(encoded, index)
            drafts = torch.bernoulli(torch.sigmoid(logits.detach()))
            # Nobody's coin matters where the deadline is 0.
            coins = _bernoulli_log_prob(logits, drafts).sum(-1) * (index > 0)
            tossing = torch.distributions.Bernoulli(logits=logits).entropy().sum(-1)
            entropies.append(tossing * (index > 0))
            lengths.append(self.lengths(given, index, drafts.to(torch.int64)))
            scores.append(deadline.log_prob(index) + coins)
        entropy = deadline.entropy() + torch.stack(entropies).mean(0)
        return torch.stack(lengths), torch.stack(scores), entropy

    def loss(self, encoded: tuple[Tensor, Tensor], given: Inputs, lengths: Tensor) -> Tensor:
        """Negative log-likelihood of a teacher's lengths [N, K], averaged over cells."""
        drafting_s = (lengths * given.token_s).amax(1)
        slowest_s = given.token_s.amax(1)
        index = torch.round(drafting_s / slowest_s).clamp_max(given.max_draft_length)
        index = torch.where(lengths.amax(1) > 0, index.clamp_min(1), index).to(torch.int64)
        coins = _bernoulli_log_prob(self.subset_logits(encoded, index), lengths > 0).sum(-1)
        nll = functional.cross_entropy(self.logits(encoded, given), index, reduction="none")
        return (nll - coins * (index > 0)).mean()


class LengthHead(nn.Module):
    """A length for each device, by a softmax of its own."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.length = _PairMLP(width, width, MAX_LENGTH + 1)

    def logits(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """[N, K, gamma_max + 1]."""
        logits: Tensor = self.length(*encoded)
        return logits[..., : given.max_draft_length + 1]

    def best(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """The most likely lengths, [N, K]."""
        return self.logits(encoded, given).argmax(-1)

    def sample(self, encoded: tuple[Tensor, Tensor], given: Inputs, count: int) -> tuple[Any, ...]:
        """As :meth:`DeadlineHead.sample`."""
        lengths = torch.distributions.Categorical(logits=self.logits(encoded, given))
        drawn = lengths.sample((count,))
        return drawn, lengths.log_prob(drawn).sum(-1), lengths.entropy().sum(-1)

    def loss(self, encoded: tuple[Tensor, Tensor], given: Inputs, lengths: Tensor) -> Tensor:
        """As :meth:`DeadlineHead.loss`, averaged over devices too."""
        logits = self.logits(encoded, given)
        return functional.cross_entropy(logits.flatten(0, 1), lengths.flatten())


class ModeHead(nn.Module):
    """Uplink (0) or downlink (1) for each device, by a coin of its own."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.mode = _PairMLP(width, width, 1)

    def logits(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """[N, K]."""
        logits: Tensor = self.mode(*encoded)
        return logits[..., 0]

    def best(self, encoded: tuple[Tensor, Tensor], given: Inputs) -> Tensor:
        """The most likely modes, [N, K]."""
        return (self.logits(encoded, given) > 0).to(torch.int64)

    def sample(self, encoded: tuple[Tensor, Tensor], given: Inputs, count: int) -> tuple[Any, ...]:
        """As :meth:`DeadlineHead.sample`."""
        coins = torch.distributions.Bernoulli(logits=self.logits(encoded, given))
        drawn = coins.sample((count,))
        return drawn.to(torch.int64), coins.log_prob(drawn).sum(-1), coins.entropy().sum(-1)

    def loss(self, encoded: tuple[Tensor, Tensor], given: Inputs, modes: Tensor) -> Tensor:
        """As :meth:`DeadlineHead.loss`, over the rejected devices."""
        rejected = given.device[..., 6]  # the feature `member`
        nll = -_bernoulli_log_prob(self.logits(encoded, given), modes)
        return (nll * rejected).sum() / rejected.sum().clamp_min(1.0)


class ShareHead(nn.Module):
    """Bandwidth shares that let all uploads end together, whatever the lengths.

    By Lemma 3 a device with w seconds of upload (over the whole band) and d seconds of drafting
    gets the share w / (y + max d - d). The slack y after the longest drafting is the only unknown;
    here a network guesses it, as a multiple of the total upload time. Normalised shares are
    insensitive to it.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.slack = _mlp(width + 2, 1)

    def shares(self, encoded: tuple[Tensor, Tensor], given: Inputs, lengths: Tensor) -> Tensor:
        """Shares [N, K], the largest 1; 0 where nothing is drafted."""
        return self._shares(given, lengths, self.log_slack(encoded, given, lengths))

    def log_slack(self, encoded: tuple[Tensor, Tensor], given: Inputs, lengths: Tensor) -> Tensor:
        """log(y / total upload time), [N]."""
        upload_s, drafting_s = lengths * given.token_upload_s, lengths * given.token_s
        total = upload_s.sum(-1).clamp_min(1e-9)
        longest = drafting_s.amax(-1)
        seen = torch.stack(
            [
                torch.log(longest.clamp_min(1e-6) / total),
                ((longest[:, None] - drafting_s) * upload_s).sum(-1) / total / total,
            ],
            dim=-1,
        )
        slack: Tensor = self.slack(torch.cat([encoded[1], seen.clamp(-10.0, 10.0)], dim=-1))
        return slack[..., 0]

    def _shares(self, given: Inputs, lengths: Tensor, log_slack: Tensor) -> Tensor:
        upload_s, drafting_s = lengths * given.token_upload_s, lengths * given.token_s
        spare = drafting_s.amax(-1, keepdim=True) - drafting_s
        slack = torch.exp(log_slack.clamp(-12.0, 3.0)) * upload_s.sum(-1)
        share = upload_s / (slack[:, None] + spare).clamp_min(1e-12)
        return share / share.amax(-1, keepdim=True).clamp_min(1e-12)

    def loss(
        self, encoded: tuple[Tensor, Tensor], given: Inputs, lengths: Tensor, slack_s: Tensor
    ) -> Tensor:
        """Squared error of the log of the teacher's slack [N] [s], where something is drafted."""
        total = (lengths * given.token_upload_s).sum(-1)
        drafted = total > 0
        target = torch.log((slack_s / total.clamp_min(1e-9)).clamp(1e-5, 10.0))
        error = (self.log_slack(encoded, given, lengths) - target) ** 2
        return (error * drafted).sum() / drafted.sum().clamp_min(1)


class Network(nn.Module):
    """An encoder, a head that decides, and for uploads one that splits the band."""

    encoder: Encoder
    head: Any
    share: ShareHead | None

    def __init__(self, head: nn.Module, share: ShareHead | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.share = Encoder(), head, share

    def encode(self, given: Inputs) -> tuple[Tensor, Tensor]:
        """Embeddings of the devices and of the cell."""
        encoded: tuple[Tensor, Tensor] = self.encoder(given)
        return encoded


#: Networks by the name that their weights have; draft lengths and modes of the correction protocol,
#: lengths and shares of the upload protocol.
NETWORKS: Final[dict[str, Callable[[], Network]]] = {
    "draft": lambda: Network(DeadlineHead()),
    "modes": lambda: Network(ModeHead()),
    "uploads": lambda: Network(LengthHead(), ShareHead()),
}
