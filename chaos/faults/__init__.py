"""Faults that are injected into the system under test. `chaos.faults.kinds` lists them all."""
