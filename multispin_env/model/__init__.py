"""The mathematics of Multi-SPIN: pure functions of arrays, with no Gymnasium in sight.

One topic a file; every formula has one home. Arrays are ``[..., K]`` with K devices last; units
stand in the names (`_s`, `_hz`, `_w`, `_db`, `_bits`). Equation numbers `A-n` refer to
*Multi-SPIN* (arXiv 2606.04581) and `B-n` to *Uplink or Downlink?* (arXiv 2608.29618).
"""
