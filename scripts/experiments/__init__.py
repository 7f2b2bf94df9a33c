"""The papers' experiments and ours, measured as tables, drawn as figures, told on a page.

`paper_a`, `paper_b` and `ours` measure and know nothing of drawing; `drawing` and `page` read
tables only; `registry` puts them together for `scripts/figures.py`.
"""
