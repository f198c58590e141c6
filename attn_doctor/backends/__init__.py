"""Which attention backends run here, by name: a catalogue as data, and how it is judged.

`live/` runs them; everything else only reads facts.
"""
