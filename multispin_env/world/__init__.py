"""What is drawn and played: an episode's randomness, one round, N cells stepped together.

========================  ==========================================================================
:mod:`.control`           the four kinds of environment, and what each observes
:mod:`.tape`              an episode's randomness, of which nothing depends on an action
:mod:`.round`             one round as a pure function of tape and decision, to read and replay
:mod:`.core`              N cells stepped together, the common ground of both shells
:mod:`.threads`           cells shared out over threads
:mod:`.arrays`            arrays that callers hand in, and what is taken for them
:mod:`.regret`            how far a decision was from the best known one
========================  ==========================================================================
"""
