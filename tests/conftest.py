"""What holds for all tests."""

import signal

from hypothesis import settings

# How long one example takes says more about the machine than about the code.
settings.register_profile("tailrace", deadline=None)
settings.load_profile("tailrace")

# Whoever runs the tests in the background has Ctrl-C ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
