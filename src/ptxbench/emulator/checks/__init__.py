"""What is wrong with a run although it may give the right numbers; observers of the machine that change nothing."""
