"""All figures by name: what is measured, how it is drawn, what the page says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from experiments import drawing, ours, page, paper_a, paper_b
from experiments.tables import Job, Row


@dataclass(frozen=True)
class Figure:
    """One experiment."""

    jobs: Callable[[bool], list[Job]]  #: quick? -> calls whose rows together are the table
    draw: Callable[[list[Row]], Any]  #: table -> matplotlib figure
    report: Callable[[list[Row]], str]  #: table -> Markdown, reported numbers beside ours


FIGURES: Final = {
    "paper-a-table1": Figure(paper_a.table1, drawing.table1, page.paper_a_table1),
    "paper-a-fig3": Figure(paper_a.fig3, drawing.paper_a_fig3, page.paper_a_fig3),
    "paper-a-fig4": Figure(paper_a.fig4, drawing.paper_a_fig4, page.paper_a_fig4),
    "paper-a-fig5": Figure(paper_a.fig5, drawing.paper_a_fig5, page.paper_a_fig5),
    "paper-a-fig6": Figure(paper_a.fig6, drawing.paper_a_fig6, page.paper_a_fig6),
    "paper-a-fig7": Figure(paper_a.fig7, drawing.paper_a_fig7, page.paper_a_fig7),
    "paper-a-fig8": Figure(paper_a.fig8, drawing.paper_a_fig8, page.paper_a_fig8),
    "paper-b-table1": Figure(paper_b.table1, drawing.table1, page.paper_b_table1),
    "paper-b-power": Figure(paper_b.downlink_power, drawing.paper_b_power, page.paper_b_power),
    "paper-b-split": Figure(paper_b.downlink_power, drawing.paper_b_split, page.paper_b_split),
    "paper-b-modes": Figure(paper_b.modes, drawing.paper_b_modes, page.paper_b_modes),
    "paper-b-lengths": Figure(paper_b.lengths, drawing.paper_b_lengths, page.paper_b_lengths),
    "regret": Figure(ours.regret, drawing.regret, page.regret),
    "learned": Figure(ours.learned, drawing.learned, page.learned),
    "sensitivity": Figure(ours.sensitivity, drawing.sensitivity, page.sensitivity),
}
