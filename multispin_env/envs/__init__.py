"""Gymnasium's side: the scalar and the vector environments, and what they are configured with.

========================  ==========================================================================
:mod:`.scalar`            the four environments, one cell each
:mod:`.vector`            the same for many cells at once
:mod:`.documentation`     the sections that their docstrings share
:mod:`.settings`          from their arguments to a core, all checked
:mod:`.spaces`            action and observation spaces
:mod:`.rewards`           what a step is worth
:mod:`.rendering`         a round as a picture or as text
:mod:`.wrappers`          other spaces for learners
========================  ==========================================================================
"""
