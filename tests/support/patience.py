"""How long a test waits for what should come at once.

On a machine with much else to do everything takes its time, so this is far more than anything takes. It is no bound that a
test is about: those stand in the test, with what they are held against.
"""

PATIENCE_SECONDS = 100.0
