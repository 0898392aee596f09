"""What is wrong with this machine, or with what a lake needs of it: facts, and what they mean."""
