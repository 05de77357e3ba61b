"""ticktrue: compile a language model into a verified, cycle-exact program for SRAM-only chips, and run it to the bit."""
