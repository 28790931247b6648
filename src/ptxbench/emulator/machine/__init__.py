"""What has lanes, memory and time: spaces, units, barriers, the asynchronous engine, schedules; knows no PTX text."""
