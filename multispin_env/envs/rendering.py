"""Pictures of a round: a timeline with one row a device.

:func:`timeline` turns a round into bars in seconds; :func:`draw_text` and :class:`Painter` show
them, as text or in pixels. Only the painter needs pygame, and it needs no display for arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from multispin_env.model.channel import snr_db
from multispin_env.model.latency import transmission_latency
from multispin_env.scenario import CorrectionRadio, Scenario
from multispin_env.world.tape import Tape

WIDTH, HEIGHT = 800, 500
FPS: Final = 4
MAX_ROWS: Final = 60  # more devices than this do not fit; the first ones are shown

#: What a bar can be: its name in the legend, its colour (Okabe-Ito, colour-blind safe), its letter.
KINDS: Final = {
    "accepted": ("accepted token", (0, 158, 115), "="),
    "rejected": ("rejected token", (213, 94, 0), "x"),
    "unused": ("drafted in vain", (190, 190, 190), "-"),
    "verification": ("verification", (248, 240, 176), "V"),
    "uplink": ("uplink", (0, 114, 178), "u"),
    "downlink": ("downlink", (204, 121, 167), "d"),
}


@dataclass(frozen=True)
class Bar:
    """One coloured stretch of a row: [start_s, end_s] of the round."""

    device: int
    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """A round as bars, and the words around them."""

    title: str
    bars: tuple[Bar, ...]
    duration_s: float
    snr_db: NDArray[np.float64]
    emitted: NDArray[np.int64]  #: tokens of each device
    dropped: NDArray[np.bool_]  #: devices that drafted nothing


def timeline(
    scenario: Scenario, tape: Tape, info: Mapping[str, Any] | None, episode_goodput: float
) -> Timeline:
    """The timeline of the round that `info` tells of; an empty one before the first round.

    Args:
        scenario, tape: of the running episode.
        info: what the last step returned.
        episode_goodput: tokens delivered over seconds so far [tokens/s].
    """
    k = scenario.num_devices
    index = 0 if info is None else info["round"]
    gain = tape.channel_gain[index]
    ratio_db = snr_db(scenario.uplink_power_w / scenario.noise_server_w * gain)
    horizon_s = scenario.episode.horizon_s
    length = f"{horizon_s:g} s" if horizon_s else f"{scenario.episode.rounds} rounds"
    if info is None:
        title = f"{scenario.name}, {k} devices, episode of {length}: no round yet"
        nothing = np.zeros(k, np.int64)
        return Timeline(title, (), 1.0, ratio_db, nothing, nothing.astype(bool))

    sending_s = _sending_times(scenario, gain, info)
    bars: list[Bar] = []
    uploads = scenario.protocol == "upload"
    ready_s = info["drafting_s"] + (info["communication_s"] if uploads else 0.0)
    for device in range(k):
        drafted_s = _add_draft(bars, device, tape.devices.token_latency_s[device], info)
        start_s = drafted_s if uploads else info["drafting_s"] + info["verification_s"]
        if info["mode"][device] >= 0:
            kind = ("uplink", "downlink")[info["mode"][device]]
            bars.append(Bar(device, kind, start_s, start_s + sending_s[device]))
        bars.append(Bar(device, "verification", ready_s, ready_s + info["verification_s"]))
    whole_s = info["drafting_s"] + info["verification_s"] + info["communication_s"]
    title = (
        f"{scenario.name}   round {index}   t = {info['time_s']:.2f} s of {length}   "
        f"this round {info['goodput']:.0f} tokens/s   so far {episode_goodput:.0f} tokens/s"
    )
    if info["tokens"] == 0:
        title += "   (cut by the horizon)"
    emitted = info["accepted"] + 1
    return Timeline(title, tuple(bars), whole_s, ratio_db, emitted, info["drafted"] == 0)


def _add_draft(bars: list[Bar], device: int, token_s: float, info: Mapping[str, Any]) -> float:
    """Add the drafting bars of a device; returns when it has drafted [s]."""
    drafted, accepted = int(info["drafted"][device]), int(info["accepted"][device])
    edges = {"accepted": accepted, "rejected": min(accepted + 1, drafted), "unused": drafted}
    start = 0
    for kind, end in edges.items():
        if end > start:
            bars.append(Bar(device, kind, start * token_s, end * token_s))
        start = max(start, end)
    return drafted * token_s


def _sending_times(
    scenario: Scenario, gain: NDArray[np.float64], info: Mapping[str, Any]
) -> NDArray[np.float64]:
    """How long each device's transmission takes [s], at most as long as the round allows."""
    sends = info["mode"] >= 0
    band_hz = info["bandwidth_hz"][sends]
    noise_w = np.full(gain.shape, scenario.noise_server_w)[sends]
    payload = np.full(band_hz.shape, float(scenario.payload.distribution_bits))
    if isinstance(scenario.radio, CorrectionRadio):
        down = info["mode"][sends] == 1
        noise_w[down] = scenario.noise_device_w[sends][down]
        noise_w *= band_hz / scenario.radio.bandwidth_hz  # the noise of the own part of the band
    else:
        payload *= info["drafted"][sends]
    snr = info["power_w"][sends] * gain[sends] / noise_w
    longest = info["drafting_s"] + info["communication_s"]
    seconds = np.zeros(gain.shape)
    seconds[sends] = np.minimum(transmission_latency(payload, band_hz, snr), longest)
    return seconds


# ---- text -------------------------------------------------------------------------------------


def draw_text(picture: Timeline, columns: int = 72) -> str:
    """The timeline as text: a line a device, a letter a stretch of time."""
    scale = columns / picture.duration_s
    lines = [picture.title]
    for device in range(len(picture.snr_db)):
        row = [" "] * columns
        for bar in picture.bars:
            if bar.device == device:
                start = min(int(bar.start_s * scale), columns - 1)
                end = min(max(round(bar.end_s * scale), start + 1), columns)
                row[start:end] = KINDS[bar.kind][2] * (end - start)
        note = "  no draft" if picture.dropped[device] else ""
        emitted = f"+{picture.emitted[device]}"
        lines.append(
            f"{device:>4} {picture.snr_db[device]:>6.1f} dB |{''.join(row)}| {emitted}{note}"
        )
    legend = "  ".join(f"{letter} {name}" for name, _, letter in KINDS.values())
    lines.append(f"0 to {picture.duration_s:.3f} s; {legend}; +n tokens emitted")
    return "\n".join(lines) + "\n"


# ---- pixels -----------------------------------------------------------------------------------

LEFT, RIGHT, TOP, BOTTOM = 96, 742, 74, 464  # the plotting area
INK, PAPER, FAINT = (30, 30, 30), (255, 255, 255), (225, 225, 225)


class Painter:
    """Draws timelines with pygame; holds the window in human mode."""

    def __init__(self, human: bool) -> None:
        try:
            import pygame
        except ImportError as error:
            raise DependencyNotInstalled(
                'rendering needs pygame: pip install "multispin-env[render]"'
            ) from error
        self._pygame = pygame
        pygame.font.init()
        self._fonts = {size: pygame.font.Font(None, size) for size in (15, 18, 20)}
        self._window: Any = None
        if human:
            pygame.display.init()
            pygame.display.set_caption("Multi-SPIN Gym")
            self._window = pygame.display.set_mode((WIDTH, HEIGHT))
            self._clock = pygame.time.Clock()

    def array(self, picture: Timeline) -> NDArray[np.uint8]:
        """The picture as an array [HEIGHT, WIDTH, 3]."""
        pixels = self._pygame.surfarray.array3d(self._paint(picture))
        return np.ascontiguousarray(pixels.swapaxes(0, 1))

    def show(self, picture: Timeline) -> None:
        """Show the picture in the window, at the frame rate of the environment."""
        self._window.blit(self._paint(picture), (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._clock.tick(FPS)

    def close(self) -> None:
        """Close the window."""
        if self._window is not None:
            self._pygame.display.quit()
            self._window = None

    def _paint(self, picture: Timeline) -> Any:
        surface = self._pygame.Surface((WIDTH, HEIGHT))
        surface.fill(PAPER)
        self._text(surface, picture.title, (12, 12), size=20)
        self._legend(surface)
        self._axis(surface, picture.duration_s)
        shown = min(len(picture.snr_db), MAX_ROWS)
        height = (BOTTOM - TOP) / shown
        for bar in picture.bars:
            if bar.device < shown:
                self._bar(surface, bar, picture.duration_s, height)
        for device in range(shown):
            self._row_labels(surface, picture, device, height)
        if shown < len(picture.snr_db):
            note = f"the first {shown} of {len(picture.snr_db)} devices"
            self._text(surface, note, (12, HEIGHT - 16), size=15)
        return surface

    def _bar(self, surface: Any, bar: Bar, duration_s: float, height: float) -> None:
        scale = (RIGHT - LEFT) / duration_s
        left = LEFT + round(bar.start_s * scale)
        right = min(LEFT + max(round(bar.end_s * scale), round(bar.start_s * scale) + 1), RIGHT)
        gap = 0 if bar.kind == "verification" else min(1.5, height / 6)
        top = TOP + bar.device * height
        box = (left, round(top + gap), right - left, max(round(height - 2 * gap), 1))
        self._pygame.draw.rect(surface, KINDS[bar.kind][1], box)

    def _row_labels(self, surface: Any, picture: Timeline, device: int, height: float) -> None:
        middle = TOP + (device + 0.5) * height
        every = max(1, int(np.ceil(12 / height)))  # no label over another
        if device % every:
            return
        size = 18 if height >= 15 else 15
        self._text(surface, f"{device}", (12, middle), size, centre=True)
        self._text(
            surface, f"{round(picture.snr_db[device])} dB", (LEFT - 8, middle), size, right=True
        )
        if picture.dropped[device]:
            self._text(surface, "no draft", (LEFT + 6, middle), 15, centre=True)
        if picture.bars:
            note = f"+{picture.emitted[device]}"
            self._text(surface, note, (RIGHT + 8, middle), size, centre=True)

    def _legend(self, surface: Any) -> None:
        left = 12
        for name, colour, _ in KINDS.values():
            self._pygame.draw.rect(surface, colour, (left, 36, 12, 12))
            left += 17
            left += self._text(surface, name, (left, 36), size=18) + 16
        self._text(surface, "+n: tokens emitted", (left, 36), size=18)

    def _axis(self, surface: Any, duration_s: float) -> None:
        step = 10.0 ** np.floor(np.log10(duration_s / 2))
        step *= next(f for f in (1, 2, 5, 10) if duration_s / (step * f) <= 9)
        for i in range(int(duration_s / step) + 1):
            x = LEFT + round(i * step * (RIGHT - LEFT) / duration_s)
            self._pygame.draw.line(surface, FAINT, (x, TOP), (x, BOTTOM))
            label = f"{i * step:g}"
            width = self._fonts[15].size(label)[0]
            self._text(surface, label, (x - width // 2, BOTTOM + 5), size=15)
        self._text(surface, "time in the round [s]", (LEFT + 250, HEIGHT - 17), size=18)
        self._text(surface, "device", (12, TOP - 9), size=15, centre=True)
        self._text(surface, "SNR", (LEFT - 8, TOP - 9), size=15, right=True)

    def _text(
        self,
        surface: Any,
        text: str,
        position: tuple[float, float],
        size: int,
        centre: bool = False,
        right: bool = False,
    ) -> int:
        """Write; `position` is the top left corner, or the middle of an edge. Returns the width."""
        drawn = self._fonts[size].render(text, True, INK)
        x, y = position
        if centre or right:
            y -= drawn.get_height() / 2
        if right:
            x -= drawn.get_width()
        surface.blit(drawn, (round(x), round(y)))
        return int(drawn.get_width())
