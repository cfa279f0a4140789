"""Steps that were not measured: on other devices, and under other settings of one trial."""
