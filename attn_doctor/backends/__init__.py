"""Which attention backends run here, by name: a catalogue as data, and its evaluation.

`live/` runs them; everything else only reads facts.
"""
