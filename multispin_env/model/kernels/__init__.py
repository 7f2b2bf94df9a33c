"""The hot loops, compiled by numba. Plain loops over rounds and devices that read like the papers.

===========================  =======================================================================
:mod:`.compiling`            how functions are compiled, and where the machine code is kept
:mod:`.logarithms`           logarithms that LLVM vectorises
:mod:`.random`               NumPy's generator, for many streams at once
:mod:`.corrections`          the correction protocol: modes, powers and latency of a round (paper B)
:mod:`.correction_samples`   solvers: mean latencies of decisions on samples
:mod:`.correction_search`    solvers: deadlines, and who drafts until them
:mod:`.correction_bound`     solvers: branch and bound over subsets
:mod:`.correction_subsets`   solvers: the more thorough searches
:mod:`.uploads`              the upload protocol: bandwidths and latency of a round (paper A)
:mod:`.upload_search`        solvers: the best lengths, with a bound
:mod:`.upload_grid`          solvers: Proposition 1 on a grid
:mod:`.state`                what N cells are made of, and what a step of them gives
:mod:`.rounds`               one round of N cells, from a decision to its outcome
:mod:`.tapes`                drawing an episode's randomness
:mod:`.observing`            what is observed of the round that comes next
===========================  =======================================================================

Physics are functions of one round: of arrays [K], or of cell `n` of arrays [..., N, K]. Outputs are
arguments that are written in place; `scratch` is memory to overwrite. Many short loops over few
arrays are faster than one over many, and selections faster than branches: LLVM vectorises them.

Signal-to-noise ratios are *full-band*: the ratio a device would have if it used the whole
bandwidth B. With r devices sharing the band equally, each has B/r and r times that ratio.
"""
