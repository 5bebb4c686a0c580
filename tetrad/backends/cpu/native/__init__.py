"""The native loop: what Python and native code share. The loop itself is LLVM text, in the files of
this folder.

The memory they both work on (run context, pool block, table image) is laid out by the constants
here and filled in by `backends.cpu.pool` and `backends.cpu.table`. The text is needed only where
the loop is not yet compiled: see `native.text`.
"""

from __future__ import annotations

from tetrad.kernel.nodes import STOP_WORD

SYMBOLS = (
    "tetrad_run", "tetrad_work", "tetrad_stop", "tetrad_unhook", "tetrad_ticks", "tetrad_set_nap",
    "tetrad_set_python",
    "tetrad_raised",
)  # fmt: skip

# Run context: 64-bit words, eight to a cache line; words that different workers write sit in
# different lines.
CONTEXT = {
    "STATUS": 0,  # trap code, then its value: the `status` argument of every kernel
    "VALUE": 1,
    "STOP": STOP_WORD,  # nonzero: stop as soon as possible
    "COUNT": 16,  # workers that reached the barrier
    "DOZERS": 17,  # workers asleep at the barrier
    "GENERATION": 24,  # barriers passed
    "AGREED": 25,  # status | stop, as all workers know it since the last barrier
    # ticks when the last of the workers came to the last barrier, if entries are timed apart
    "RELEASED": 26,
    "POOL": 32,
    "SCRATCH": 33,  # address of worker 0's scratch; the others follow at distance STRIDE
    "STRIDE": 34,
    "PROFILE": 35,  # address of one tick counter per entry, or 0
    "TEAM": 36,  # how many workers ran (output)
    # address of a line for each worker: pieces taken of its range, by turns in two words; then MARK
    "CLAIMS": 37,
    "SIGNALS": 38,  # that this run listens to, bit n is signal n
    "TABLE": 40,  # from here on written for every run
    "OPTIONS": 41,  # wanted threads, plus HOOK, ANYTIME and APART
    "BASES": 42,
}
HOOK = 1 << 16  # option: listen to signals while this run lasts
ANYTIME = 1 << 17  # option: handlers may run at any moment, because the run calls no code but ours
APART = 1 << 18  # option: a barrier after every entry, so that its time is that of all workers
CONTEXT_WORDS = CONTEXT["TABLE"]
MARK = 2  # word of a worker's line of claims: where it has arrived

# Pool block: 64-bit words.
POOL = {
    "EPOCH": 0,  # number of jobs << 16 | workers of the latest; EXIT workers means: go home
    "IDLERS": 8,  # workers asleep until the next job
    "READY": 9,  # workers that entered the native loop
    "BUSY": 16,
    "DONE": 24,  # workers that finished the job
    "JOINED": 32,  # the epoch whose job all workers finished
    "WAITERS": 33,  # 1 while the caller sleeps until then
    "JOB": 40,  # run context
    # a worker was brought to worker 0's processor: 1 while it may be there, 2 since it was sent off
    "FETCHED": 41,
    "LOOKED": 42,  # ticks when worker 0 last looked whether the others run
    "CAME": 43,  # ticks when a worker was last brought, ...
    "STAY": 44,  # ... how many it may stay, ...
    "LEFT": 45,  # ... and when one was last sent away
    "PLACES": 46,  # how many processors workers may use
    "PROCESSORS": 48,  # the set of processors that workers may use, a bit for each
    "NUMBERS": 64,  # of each worker's thread, as the system knows it
}
MOST_THREADS = 1024
PROCESSOR_WORDS = POOL["NUMBERS"] - POOL["PROCESSORS"]
POOL_WORDS = POOL["NUMBERS"] + MOST_THREADS
EXIT = 0xFFFF

# Records of a table image: kind, size in words, flags, profile slot; then what the kind needs (see
# runtime.table).
KINDS = {"KERNEL": 0, "CALL": 1, "LOOP": 2, "BRANCH": 3, "HOST": 4}
FLAGS = {
    "BARRIER": 1,
    "SERIAL": 2,
    "LOADED": 4,
    "COUNTS": 8,
    "TESTS": 16,
    "MEETS": 32,
    "ALONE": 64,
    "SHARED": 128,
}
HEADER_WORDS = 4
