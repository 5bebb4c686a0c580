"""AArch64 on a machine that is none: `make test-aarch64`.

Everything runs in qemu's user mode: an interpreter, its libraries and wheels for AArch64 lie in a
folder, no rights of the system are needed, and no other kernel. `machine` makes that folder, `bits`
says what programs give, `tokens` what a language model says, `__main__` runs them here and there
and compares, then runs pytest there.
"""
