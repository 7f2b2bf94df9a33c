"""What the cards of the shipped weights say, as a table.

python -m agents.cards     # refreshes docs/agents.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.policy import WEIGHTS
from multispin_env.benchmark.report import put_between


def cards() -> list[dict[str, Any]]:
    """All cards, by agent and network."""
    return [json.loads(path.read_text("utf8")) for path in sorted(WEIGHTS.glob("*/*.json"))]


def table() -> str:
    """A row a task and agent: goodput, and its ratio to the strongest analytical policy."""
    lines = [
        "| agent | task | tokens/s | ratio to the strongest analytical policy |",
        "| --- | --- | --- | --- |",
    ]
    for card in cards():
        for task, found in card["dev"].items():
            lines.append(
                f"| {card['agent']} | {task} | {found['goodput']:.1f} | {found['ratio']:.4f} ± "
                f"{found['half_width']:.4f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Put the table between the markers of docs/agents.md."""
    page = Path(__file__).parents[1] / "docs" / "agents.md"
    page.write_text(put_between(page.read_text("utf8"), "cards", table()), "utf8")


if __name__ == "__main__":
    main()
