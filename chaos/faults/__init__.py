"""What can happen to the system under test. `chaos.faults.kinds` lists it all."""
