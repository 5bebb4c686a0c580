"""The runtime, native code: the LLVM text of the loop that executes a schedule, its barrier and its workers.

Receives a target, returns module text for `codegen.llvm`. Everything here runs without the GIL and without Python; the
memory it works on (run context, pool block, table image) is laid out by the constants below and filled in by
`runtime.pool` and `runtime.table`. All workers execute the same table in lockstep; worker 0 is the caller.

Two rules keep the lockstep. What steers control flow (trip count, loop condition, branch index) is read by all, then a
barrier, then decided, so no worker can overwrite it before all have seen it. And trouble (a trap, Ctrl-C) ends loops
only through `agreed`, which the last worker to reach a barrier writes before it lets the others go.
"""

from __future__ import annotations

import re
from string import Template

from tetrad.core.errors import CompileError
from tetrad.core.target import Target

SYMBOLS = ("tetrad_run", "tetrad_work", "tetrad_stop", "tetrad_unhook", "tetrad_ticks", "tetrad_set_nap")

# Run context: 64-bit words, eight to a cache line; words that different workers write sit in different lines.
CONTEXT = {
    "STATUS": 0,  # trap code, then its value: the `status` argument of every kernel
    "VALUE": 1,
    "STOP": 8,  # nonzero: stop as soon as possible
    "COUNT": 16,  # workers that reached the barrier
    "DOZERS": 17,  # workers asleep at the barrier
    "GENERATION": 24,  # barriers passed
    "AGREED": 25,  # status | stop, as all workers know it since the last barrier
    "POOL": 32,
    "SCRATCH": 33,  # address of worker 0's scratch; the others follow at distance STRIDE
    "STRIDE": 34,
    "PROFILE": 35,  # address of one tick counter per entry, or 0
    "TEAM": 36,  # how many workers ran (output)
    "TABLE": 40,  # from here on written for every run
    "OPTIONS": 41,  # wanted threads, plus HOOK
    "BASES": 42,
}
HOOK = 1 << 16  # option: let SIGINT stop this run
CONTEXT_WORDS = CONTEXT["TABLE"]

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
}
POOL_WORDS = 48
EXIT = 0xFFFF

# Records of a table image: kind, size in words, flags, profile slot; then what the kind needs (see runtime.table).
KINDS = {"KERNEL": 0, "CALL": 1, "LOOP": 2, "BRANCH": 3, "FOREIGN": 4}
FLAGS = {"BARRIER": 1, "SERIAL": 2, "LOADED": 4, "COUNTS": 8, "TESTS": 16, "MEETS": 32, "ALONE": 64}
HEADER_WORDS = 4

# Ticks of the time-stamp counter (2 to 4 a nanosecond).
IDLE_TICKS = 150_000  # a worker without work spins about 50 us before it sleeps
LONG_TICKS = 150_000  # at a barrier it starts with the same patience, ...
SHORT_TICKS = 1_000  # ... and loses it where waiting did not help: more threads than cores
YIELDS = 4  # times it offers its core to others before it sleeps

X86 = {
    "TICKS": "call i64 @llvm.readcyclecounter()",
    "PAUSE": "call void @llvm.x86.sse2.pause()",
    "SAVE_FLOAT": "call void @llvm.x86.sse.stmxcsr(ptr %float)",
    "SET_FLOAT": "store i32 8064, ptr %plain\n  call void @llvm.x86.sse.ldmxcsr(ptr %plain)",  # 0x1F80, the reset value
    "RESTORE_FLOAT": "call void @llvm.x86.sse.ldmxcsr(ptr %float)",
    "DECLARE": "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.stmxcsr(ptr)\n"
    "declare void @llvm.x86.sse.ldmxcsr(ptr)\ndeclare i64 @llvm.readcyclecounter()",
}
MACHINES = {"x86_64": X86}

# Linux system calls on x86-64: sched_yield 24; futex 202 with WAIT_BITSET 9, WAKE_BITSET 10, PRIVATE 128.
FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @tetrad.yield() nounwind {
  %ignored = call i64 (i64, ...) @syscall(i64 24)
  ret void
}

; Sleep while the low half of the word is that of %old; `bits` says who may be woken apart from the others.
define internal void @tetrad.sleep(ptr %word, i64 %old, i32 %bits) nounwind {
  %low = trunc i64 %old to i32
  %ignored = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 137, i32 %low, ptr null, ptr null, i32 %bits)
  ret void
}

define internal void @tetrad.wake(ptr %word, i32 %bits) nounwind {
  %ignored = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 138, i32 2147483647, ptr null, ptr null, i32 %bits)
  ret void
}

define void @tetrad_set_nap(ptr %nanosleep) nounwind {
  ret void
}
"""

# Elsewhere a sleeper looks again every 100 us; nanosleep comes as an address, because only a few names may be linked.
NAP = """
@tetrad.nap = internal global ptr null
@tetrad.moment = internal constant [2 x i64] [i64 0, i64 100000]

define internal void @tetrad.yield() nounwind {
  ret void
}

define internal void @tetrad.sleep(ptr %word, i64 %old, i32 %bits) nounwind {
  %nanosleep = load ptr, ptr @tetrad.nap
  %ignored = call i32 %nanosleep(ptr @tetrad.moment, ptr null)
  ret void
}

define internal void @tetrad.wake(ptr %word, i32 %bits) nounwind {
  ret void
}

define void @tetrad_set_nap(ptr %nanosleep) nounwind {
  store ptr %nanosleep, ptr @tetrad.nap
  ret void
}
"""

WAITING = """
; Wait until the word is not %old; the flag says that spinning was in vain.
; entry -[changed]-> quick;  entry -> spin;  spin -[changed]-> quick;  spin -> pause -[patience]-> spin;  pause -> yield
; yield -[changed]-> slow;  yield -> counted -[tries left]-> yield;  counted -> sleep -[changed]-> slow;  sleep -> sleep
define internal { i64, i1 } @tetrad.wait(ptr %word, i64 %old, ptr %sleepers, i32 %bits, i64 %patience) nounwind {
entry:
  %v0 = load atomic i64, ptr %word acquire, align 8
  %c0 = icmp ne i64 %v0, %old
  br i1 %c0, label %quick, label %begin
begin:
  %start = $TICKS
  br label %spin
spin:
  %v1 = load atomic i64, ptr %word acquire, align 8
  %c1 = icmp ne i64 %v1, %old
  br i1 %c1, label %quick, label %pause
pause:
  $PAUSE
  %now = $TICKS
  %spent = sub i64 %now, %start
  %more = icmp ult i64 %spent, %patience
  br i1 %more, label %spin, label %yield
yield:
  %try = phi i64 [ 0, %pause ], [ %next, %counted ]
  call void @tetrad.yield()
  %v2 = load atomic i64, ptr %word acquire, align 8
  %c2 = icmp ne i64 %v2, %old
  br i1 %c2, label %slow, label %counted
counted:
  %next = add i64 %try, 1
  %again = icmp ult i64 %next, $YIELDS
  br i1 %again, label %yield, label %sleep
sleep:
  ; The waker changes the word and then looks for sleepers; we announce ourselves and then look at the word.
  %in = atomicrmw add ptr %sleepers, i64 1 seq_cst
  call void @tetrad.sleep(ptr %word, i64 %old, i32 %bits)
  %out = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %v3 = load atomic i64, ptr %word acquire, align 8
  %c3 = icmp ne i64 %v3, %old
  br i1 %c3, label %slow, label %sleep
quick:
  %q = phi i64 [ %v0, %entry ], [ %v1, %spin ]
  %q1 = insertvalue { i64, i1 } { i64 undef, i1 false }, i64 %q, 0
  ret { i64, i1 } %q1
slow:
  %s = phi i64 [ %v2, %yield ], [ %v3, %sleep ]
  %s1 = insertvalue { i64, i1 } { i64 undef, i1 true }, i64 %s, 0
  ret { i64, i1 } %s1
}

; Change the word and wake whoever sleeps on it.
define internal void @tetrad.announce(ptr %word, i64 %new, ptr %sleepers, i32 %bits) nounwind {
  %before = atomicrmw xchg ptr %word, i64 %new seq_cst
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp ne i64 %asleep, 0
  br i1 %any, label %wake, label %done
wake:
  call void @tetrad.wake(ptr %word, i32 %bits)
  br label %done
done:
  ret void
}

; Trap code or stop word: nonzero means that no further kernel should start.
define internal i64 @tetrad.trouble(ptr %ctx) nounwind {
  %status = load atomic i64, ptr %ctx monotonic, align 8
  %stop.at = getelementptr i64, ptr %ctx, i64 $STOP
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %both = or i64 %status, %stop
  ret i64 %both
}

; A worker's frame, on its stack: context, worker, threads, scratch, patience, and where `agreed` is kept: in the
; context, known to all. A worker that runs a loop alone has one of its own: the others have agreed on nothing yet.
define internal i1 @tetrad.ended(ptr %frame) nounwind {
  %at.at = getelementptr i64, ptr %frame, i64 5
  %at = load ptr, ptr %at.at
  %agreed = load atomic i64, ptr %at monotonic, align 8
  %ended = icmp ne i64 %agreed, 0
  ret i1 %ended
}

define internal void @tetrad.agree(ptr %frame) nounwind {
  %ctx = load ptr, ptr %frame
  %trouble = call i64 @tetrad.trouble(ptr %ctx)
  %at.at = getelementptr i64, ptr %frame, i64 5
  %at = load ptr, ptr %at.at
  store atomic i64 %trouble, ptr %at monotonic, align 8
  ret void
}

; entry -[alone]-> solo;  entry -> arrive -[last]-> release;  arrive -> wait
define internal void @tetrad.barrier(ptr %frame) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %threads.at = getelementptr i64, ptr %frame, i64 2
  %threads = load i64, ptr %threads.at
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %solo, label %arrive
solo:
  call void @tetrad.agree(ptr %frame)
  ret void
arrive:
  %count.at = getelementptr i64, ptr %ctx, i64 $COUNT
  %dozers = getelementptr i64, ptr %ctx, i64 $DOZERS
  %gen.at = getelementptr i64, ptr %ctx, i64 $GENERATION
  %gen = load atomic i64, ptr %gen.at monotonic, align 8
  %before = atomicrmw add ptr %count.at, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %last = icmp eq i64 %arrived, %threads
  br i1 %last, label %release, label %wait
release:
  store atomic i64 0, ptr %count.at monotonic, align 8
  call void @tetrad.agree(ptr %frame)
  %following = add i64 %gen, 1
  call void @tetrad.announce(ptr %gen.at, i64 %following, ptr %dozers, i32 -1)
  ret void
wait:
  %patience.at = getelementptr i64, ptr %frame, i64 4
  %patience = load i64, ptr %patience.at
  %waited = call { i64, i1 } @tetrad.wait(ptr %gen.at, i64 %gen, ptr %dozers, i32 -1, i64 %patience)
  %vain = extractvalue { i64, i1 } %waited, 1
  %half = lshr i64 %patience, 1
  %double = shl i64 %patience, 1
  %less = call i64 @llvm.umax.i64(i64 %half, i64 $SHORT_TICKS)
  %more = call i64 @llvm.umin.i64(i64 %double, i64 $LONG_TICKS)
  %adapted = select i1 %vain, i64 %less, i64 %more
  store i64 %adapted, ptr %patience.at
  ret void
}
"""

ENTRIES = """
; A word of a table: base < 0 is an immediate, else an address relative to that base.
define internal i64 @tetrad.word(ptr %pair, ptr %bases) nounwind {
  %base = load i64, ptr %pair
  %value.at = getelementptr i64, ptr %pair, i64 1
  %value = load i64, ptr %value.at
  %relative = icmp sge i64 %base, 0
  br i1 %relative, label %add, label %done
add:
  %base.at = getelementptr i64, ptr %bases, i64 %base
  %address = load i64, ptr %base.at
  %sum = add i64 %address, %value
  ret i64 %sum
done:
  ret i64 %value
}

; The same for a list, written out: short kernels in loops spend much of their time here.
; entry -> head -[i < n]-> body -[relative]-> add -> next;  body -> next -> head;  head -> done
define internal void @tetrad.resolve(ptr %pairs, i64 %n, ptr %bases, ptr %out) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %twice = shl i64 %i, 1
  %pair = getelementptr i64, ptr %pairs, i64 %twice
  %base = load i64, ptr %pair
  %value.at = getelementptr i64, ptr %pair, i64 1
  %value = load i64, ptr %value.at
  %relative = icmp sge i64 %base, 0
  br i1 %relative, label %add, label %next
add:
  %base.at = getelementptr i64, ptr %bases, i64 %base
  %address = load i64, ptr %base.at
  %sum = add i64 %address, %value
  br label %next
next:
  %word = phi i64 [ %value, %body ], [ %sum, %add ]
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %word, ptr %to
  %following = add i64 %i, 1
  br label %head
done:
  ret void
}

; Record: function, groups, slice, number of words, words. Workers split the groups into contiguous ranges.
; entry -[not for me]-> done;  entry -> split -[nothing]-> done;  split -> prepare -> head
; head -[trouble]-> done;  head -> call -[more]-> head;  call -> done
define internal void @tetrad.kernel(ptr %frame, ptr %record, ptr %bases) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 1
  %worker = load i64, ptr %worker.at
  %threads.at = getelementptr i64, ptr %frame, i64 2
  %all = load i64, ptr %threads.at
  %flags.at = getelementptr i64, ptr %record, i64 2
  %flags = load i64, ptr %flags.at
  %serial = and i64 %flags, $SERIAL
  %is.serial = icmp ne i64 %serial, 0
  %threads = select i1 %is.serial, i64 1, i64 %all
  %mine = icmp ult i64 %worker, %threads
  br i1 %mine, label %split, label %done
split:
  %groups.at = getelementptr i64, ptr %record, i64 5
  %groups = load i64, ptr %groups.at
  %p0 = mul i64 %groups, %worker
  %begin = udiv i64 %p0, %threads
  %p1 = add i64 %p0, %groups
  %end = udiv i64 %p1, %threads
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %prepare, label %done
prepare:
  %function.at = getelementptr i64, ptr %record, i64 4
  %function = load ptr, ptr %function.at
  %slice.at = getelementptr i64, ptr %record, i64 6
  %slice = load i64, ptr %slice.at
  %n.at = getelementptr i64, ptr %record, i64 7
  %n = load i64, ptr %n.at
  %args = alloca i64, i64 %n, align 16
  %pairs = getelementptr i64, ptr %record, i64 8
  call void @tetrad.resolve(ptr %pairs, i64 %n, ptr %bases, ptr %args)
  %scratch.at = getelementptr i64, ptr %frame, i64 3
  %scratch = load ptr, ptr %scratch.at
  %whole = icmp eq i64 %slice, 0
  %step = select i1 %whole, i64 %groups, i64 %slice
  br label %head
head:
  %from = phi i64 [ %begin, %prepare ], [ %to, %call ]
  %trouble = call i64 @tetrad.trouble(ptr %ctx)
  %fine = icmp eq i64 %trouble, 0
  br i1 %fine, label %call, label %done
call:
  %far = add i64 %from, %step
  %to = call i64 @llvm.umin.i64(i64 %far, i64 %end)
  call void %function(ptr %args, i64 %from, i64 %to, ptr %scratch, ptr %ctx)
  %more = icmp ult i64 %to, %end
  br i1 %more, label %head, label %done
done:
  ret void
}

; Record: function, number of words, words. Worker 0 calls; the others go on to the barrier.
; entry -[worker 0]-> check -[no trouble]-> call -> done;  entry, check -> done
define internal void @tetrad.foreign(ptr %frame, ptr %record, ptr %bases) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 1
  %worker = load i64, ptr %worker.at
  %first = icmp eq i64 %worker, 0
  br i1 %first, label %check, label %done
check:
  %trouble = call i64 @tetrad.trouble(ptr %ctx)
  %fine = icmp eq i64 %trouble, 0
  br i1 %fine, label %call, label %done
call:
  %function.at = getelementptr i64, ptr %record, i64 4
  %function = load ptr, ptr %function.at
  %n.at = getelementptr i64, ptr %record, i64 5
  %n = load i64, ptr %n.at
  %args = alloca i64, i64 %n, align 16
  %pairs = getelementptr i64, ptr %record, i64 6
  call void @tetrad.resolve(ptr %pairs, i64 %n, ptr %bases, ptr %args)
  call void %function(ptr %args)
  br label %done
done:
  ret void
}

; Record: table, number of bases, bases. The sub-table sees only the bases resolved here.
define internal void @tetrad.call(ptr %frame, ptr %record, ptr %bases, ptr %profile) nounwind {
  %table.at = getelementptr i64, ptr %record, i64 4
  %table = load ptr, ptr %table.at
  %n.at = getelementptr i64, ptr %record, i64 5
  %n = load i64, ptr %n.at
  %inner = alloca i64, i64 %n, align 16
  %pairs = getelementptr i64, ptr %record, i64 6
  call void @tetrad.resolve(ptr %pairs, i64 %n, ptr %bases, ptr %inner)
  call void @tetrad.entries(ptr %frame, ptr %table, ptr %inner, ptr %profile, i1 false)
  ret void
}

; Bytes from one place to another that does not overlap it: eight at a time, then one at a time.
; entry -> head -[whole word]-> word -> head;  head -> tail -[byte left]-> byte -> tail;  tail -> done
define internal void @tetrad.copy(ptr %to, ptr %from, i64 %n) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %word ]
  %next = add i64 %i, 8
  %whole = icmp ule i64 %next, %n
  br i1 %whole, label %word, label %tail
word:
  %word.from = getelementptr i8, ptr %from, i64 %i
  %word.to = getelementptr i8, ptr %to, i64 %i
  %w = load i64, ptr %word.from, align 1
  store i64 %w, ptr %word.to, align 1
  br label %head
tail:
  %j = phi i64 [ %i, %head ], [ %after, %byte ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %byte, label %done
byte:
  %byte.from = getelementptr i8, ptr %from, i64 %j
  %byte.to = getelementptr i8, ptr %to, i64 %j
  %b = load i8, ptr %byte.from
  store i8 %b, ptr %byte.to
  %after = add i64 %j, 1
  br label %tail
done:
  ret void
}

; The bases a loop's body sees: records of base, value, stride.
; entry -> head -[i < n]-> body -> head;  head -> done
define internal void @tetrad.begin(ptr %list, i64 %n, ptr %bases, ptr %own) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = mul i64 %i, 3
  %pair = getelementptr i64, ptr %list, i64 %at
  %word = call i64 @tetrad.word(ptr %pair, ptr %bases)
  %to = getelementptr i64, ptr %own, i64 %i
  store i64 %word, ptr %to
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; After an iteration. Carries first, records of: base read, base written, home (2 words), spare (2 words), swaps, bytes.
; What was written is read next; what is written next is the other of home and spare, or the next row. Then every base
; moves on by its stride.
; entry -> carry -[j < m]-> follow -[swaps]-> swap -> carried -> carry;  follow -> carried;  carry -> head
; head -[i < n]-> body -> head;  head -> done
define internal void @tetrad.advance(ptr %list, i64 %n, ptr %carries, i64 %m, ptr %bases, ptr %own) nounwind {
entry:
  br label %carry
carry:
  %j = phi i64 [ 0, %entry ], [ %j.next, %carried ]
  %some = icmp ult i64 %j, %m
  br i1 %some, label %follow, label %head
follow:
  %j.at = mul i64 %j, 8
  %record = getelementptr i64, ptr %carries, i64 %j.at
  %read = load i64, ptr %record
  %written.at = getelementptr i64, ptr %record, i64 1
  %written = load i64, ptr %written.at
  %read.base = getelementptr i64, ptr %own, i64 %read
  %written.base = getelementptr i64, ptr %own, i64 %written
  %result = load i64, ptr %written.base
  store i64 %result, ptr %read.base
  %swaps.at = getelementptr i64, ptr %record, i64 6
  %swaps.word = load i64, ptr %swaps.at
  %swaps = icmp ne i64 %swaps.word, 0
  br i1 %swaps, label %swap, label %carried
swap:
  %home.at = getelementptr i64, ptr %record, i64 2
  %home = call i64 @tetrad.word(ptr %home.at, ptr %bases)
  %spare.at = getelementptr i64, ptr %record, i64 4
  %spare = call i64 @tetrad.word(ptr %spare.at, ptr %bases)
  %at.home = icmp eq i64 %result, %home
  %other = select i1 %at.home, i64 %spare, i64 %home
  store i64 %other, ptr %written.base
  br label %carried
carried:
  %j.next = add i64 %j, 1
  br label %carry
head:
  %i = phi i64 [ 0, %carry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = mul i64 %i, 3
  %stride.word = add i64 %at, 2
  %stride.at = getelementptr i64, ptr %list, i64 %stride.word
  %stride = load i64, ptr %stride.at
  %base = getelementptr i64, ptr %own, i64 %i
  %before = load i64, ptr %base
  %moved = add i64 %before, %stride
  store i64 %moved, ptr %base
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; After the loop: carries that do not lie at home are taken there by worker 0. Every worker decides alike.
; entry -> head -[j < m]-> look -[away]-> away -[worker 0]-> copy -> next;  look, away -> next -> head;  head -> done
define internal void @tetrad.settle(ptr %frame, ptr %carries, i64 %m, ptr %bases, ptr %own) nounwind {
entry:
  %worker.at = getelementptr i64, ptr %frame, i64 1
  %worker = load i64, ptr %worker.at
  %first = icmp eq i64 %worker, 0
  br label %head
head:
  %j = phi i64 [ 0, %entry ], [ %j.next, %next ]
  %any = phi i1 [ false, %entry ], [ %found, %next ]
  %more = icmp ult i64 %j, %m
  br i1 %more, label %look, label %end
look:
  %at = mul i64 %j, 8
  %record = getelementptr i64, ptr %carries, i64 %at
  %read = load i64, ptr %record
  %read.base = getelementptr i64, ptr %own, i64 %read
  %from = load i64, ptr %read.base
  %home.at = getelementptr i64, ptr %record, i64 2
  %home = call i64 @tetrad.word(ptr %home.at, ptr %bases)
  %is.away = icmp ne i64 %from, %home
  %found = or i1 %any, %is.away
  %copies = and i1 %is.away, %first
  br i1 %copies, label %copy, label %next
copy:
  %bytes.at = getelementptr i64, ptr %record, i64 7
  %bytes = load i64, ptr %bytes.at
  %to.pointer = inttoptr i64 %home to ptr
  %from.pointer = inttoptr i64 %from to ptr
  call void @tetrad.copy(ptr %to.pointer, ptr %from.pointer, i64 %bytes)
  br label %next
next:
  %j.next = add i64 %j, 1
  br label %head
end:
  br i1 %any, label %sync, label %done
sync:
  call void @tetrad.barrier(ptr %frame)
  br label %done
done:
  ret void
}

; A loop for all workers, or for worker 0 with a frame that knows no others: its barriers cost nothing.
; entry -[alone]-> alone -[worker 0]-> mine -> done;  alone -> done;  entry -> together -> done
define internal void @tetrad.loop(ptr %frame, ptr %record, ptr %bases, ptr %profile) nounwind {
entry:
  %flags.at = getelementptr i64, ptr %record, i64 2
  %flags = load i64, ptr %flags.at
  %f.alone = and i64 %flags, $ALONE
  %is.alone = icmp ne i64 %f.alone, 0
  br i1 %is.alone, label %alone, label %together
alone:
  %worker.at = getelementptr i64, ptr %frame, i64 1
  %worker = load i64, ptr %worker.at
  %first = icmp eq i64 %worker, 0
  br i1 %first, label %mine, label %done
mine:
  %own = alloca [8 x i64], align 16
  %agreed = alloca i64
  store i64 0, ptr %agreed
  call void @tetrad.copy(ptr %own, ptr %frame, i64 64)
  %threads.at = getelementptr i64, ptr %own, i64 2
  store i64 1, ptr %threads.at
  %agreed.at = getelementptr i64, ptr %own, i64 5
  store ptr %agreed, ptr %agreed.at
  call void @tetrad.repeat(ptr %own, ptr %record, ptr %bases, ptr %profile)
  br label %done
together:
  call void @tetrad.repeat(ptr %frame, ptr %record, ptr %bases, ptr %profile)
  br label %done
done:
  ret void
}

; Record: body, trips (2 words), counter (2 words), until (2 words), number of bases, number of carries, both lists.
; A loop without bases of its own shows its body those of its table.
; entry -[trips in memory]-> fetch -> head;  entry -> head
; head -[i = trips]-> done;  head -> look -[condition]-> test -> note;  look -> note
; note -[counter, worker 0]-> count -> meet;  note -> meet -[barrier needed]-> sync -> decide;  meet -> decide
; decide -[ended or condition 0]-> done;  decide -> run -[ended]-> done;  run -> head
define internal void @tetrad.repeat(ptr %frame, ptr %record, ptr %outer, ptr %profile) nounwind {
entry:
  %n.at = getelementptr i64, ptr %record, i64 11
  %n = load i64, ptr %n.at
  %m.at = getelementptr i64, ptr %record, i64 12
  %m = load i64, ptr %m.at
  %list = getelementptr i64, ptr %record, i64 13
  %triple = mul i64 %n, 3
  %carries = getelementptr i64, ptr %list, i64 %triple
  %own = alloca i64, i64 %n, align 16
  call void @tetrad.begin(ptr %list, i64 %n, ptr %outer, ptr %own)
  %shares = icmp eq i64 %n, 0
  %bases = select i1 %shares, ptr %outer, ptr %own
  %worker.at = getelementptr i64, ptr %frame, i64 1
  %worker = load i64, ptr %worker.at
  %flags.at = getelementptr i64, ptr %record, i64 2
  %flags = load i64, ptr %flags.at
  %body.at = getelementptr i64, ptr %record, i64 4
  %body = load ptr, ptr %body.at
  %trips.at = getelementptr i64, ptr %record, i64 5
  %immediate = call i64 @tetrad.word(ptr %trips.at, ptr %outer)
  %counter.at = getelementptr i64, ptr %record, i64 7
  %counter = call i64 @tetrad.word(ptr %counter.at, ptr %outer)
  %until.at = getelementptr i64, ptr %record, i64 9
  %until = call i64 @tetrad.word(ptr %until.at, ptr %outer)
  %f.loaded = and i64 %flags, $LOADED
  %loaded = icmp ne i64 %f.loaded, 0
  %f.counts = and i64 %flags, $COUNTS
  %counts = icmp ne i64 %f.counts, 0
  %f.tests = and i64 %flags, $TESTS
  %tests = icmp ne i64 %f.tests, 0
  %f.meets = and i64 %flags, $MEETS
  %meets = icmp ne i64 %f.meets, 0
  %first = icmp eq i64 %worker, 0
  %writes = and i1 %counts, %first
  br i1 %loaded, label %fetch, label %head
fetch:
  %trips.pointer = inttoptr i64 %immediate to ptr
  %stored = load atomic i64, ptr %trips.pointer monotonic, align 8
  call void @tetrad.barrier(ptr %frame)
  br label %head
head:
  %trips = phi i64 [ %immediate, %entry ], [ %stored, %fetch ], [ %trips, %run ]
  %i = phi i64 [ 0, %entry ], [ 0, %fetch ], [ %next, %run ]
  %more = icmp slt i64 %i, %trips
  br i1 %more, label %look, label %done
look:
  br i1 %tests, label %test, label %note
test:
  %until.pointer = inttoptr i64 %until to ptr
  %byte = load atomic i8, ptr %until.pointer monotonic, align 1
  %holds = icmp ne i8 %byte, 0
  br label %note
note:
  %go = phi i1 [ true, %look ], [ %holds, %test ]
  br i1 %writes, label %count, label %meet
count:
  %counter.pointer = inttoptr i64 %counter to ptr
  store atomic i64 %i, ptr %counter.pointer monotonic, align 8
  br label %meet
meet:
  br i1 %meets, label %sync, label %decide
sync:
  call void @tetrad.barrier(ptr %frame)
  br label %decide
decide:
  %ended = call i1 @tetrad.ended(ptr %frame)
  %quiet = xor i1 %ended, true
  %enter = and i1 %go, %quiet
  br i1 %enter, label %run, label %done
run:
  call void @tetrad.entries(ptr %frame, ptr %body, ptr %bases, ptr %profile, i1 false)
  call void @tetrad.advance(ptr %list, i64 %n, ptr %carries, i64 %m, ptr %outer, ptr %own)
  %next = add i64 %i, 1
  %over = call i1 @tetrad.ended(ptr %frame)
  br i1 %over, label %done, label %head
done:
  call void @tetrad.settle(ptr %frame, ptr %carries, i64 %m, ptr %outer, ptr %own)
  ret void
}

; Record: number of tables, index (2 words), then table and profile slot of each.
; entry -[ended]-> done;  entry -> choose -[profile]-> slot -> run;  choose -> run
define internal void @tetrad.branch(ptr %frame, ptr %record, ptr %bases, ptr %profile) nounwind {
entry:
  %n.at = getelementptr i64, ptr %record, i64 4
  %n = load i64, ptr %n.at
  %index.at = getelementptr i64, ptr %record, i64 5
  %address = call i64 @tetrad.word(ptr %index.at, ptr %bases)
  %pointer = inttoptr i64 %address to ptr
  %narrow = load atomic i32, ptr %pointer monotonic, align 4
  call void @tetrad.barrier(ptr %frame)
  %ended = call i1 @tetrad.ended(ptr %frame)
  br i1 %ended, label %done, label %choose
choose:
  %index = sext i32 %narrow to i64
  %greatest = sub i64 %n, 1
  %low = call i64 @llvm.smax.i64(i64 %index, i64 0)
  %chosen = call i64 @llvm.smin.i64(i64 %low, i64 %greatest)
  %twice = shl i64 %chosen, 1
  %list = getelementptr i64, ptr %record, i64 7
  %choice = getelementptr i64, ptr %list, i64 %twice
  %table = load ptr, ptr %choice
  %off = icmp eq ptr %profile, null
  br i1 %off, label %run, label %slot
slot:
  %slot.at = getelementptr i64, ptr %choice, i64 1
  %first = load i64, ptr %slot.at
  %inner = getelementptr i64, ptr %profile, i64 %first
  br label %run
run:
  %slots = phi ptr [ null, %choose ], [ %inner, %slot ]
  call void @tetrad.entries(ptr %frame, ptr %table, ptr %bases, ptr %slots, i1 false)
  br label %done
done:
  ret void
}

; All entries of a table. The last barrier of the outermost table is left out: the end of the run takes its place.
; entry -[empty]-> done;  entry -> head -[profile]-> clock -> enter;  head -> enter -> one of five -> after
; after -[barrier]-> sync -> timed;  after -> timed -[profile]-> note -> next;  timed -> next
; next -[ended, or no entry left]-> done;  next -> head
define internal void @tetrad.entries(ptr %frame, ptr %table, ptr %bases, ptr %profile, i1 %outermost) nounwind {
entry:
  %count = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  %timing = icmp ne ptr %profile, null
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %done, label %head
head:
  %record = phi ptr [ %first, %entry ], [ %following, %next ]
  %left = phi i64 [ %count, %entry ], [ %fewer, %next ]
  %kind = load i64, ptr %record
  %size.at = getelementptr i64, ptr %record, i64 1
  %size = load i64, ptr %size.at
  %flags.at = getelementptr i64, ptr %record, i64 2
  %flags = load i64, ptr %flags.at
  %fewer = sub i64 %left, 1
  br i1 %timing, label %clock, label %enter
clock:
  %slot.at = getelementptr i64, ptr %record, i64 3
  %slot = load i64, ptr %slot.at
  %mine = getelementptr i64, ptr %profile, i64 %slot
  %below = getelementptr i64, ptr %mine, i64 1
  %start = $TICKS
  br label %enter
enter:
  %timer = phi ptr [ null, %head ], [ %mine, %clock ]
  %inner = phi ptr [ null, %head ], [ %below, %clock ]
  %since = phi i64 [ 0, %head ], [ %start, %clock ]
  switch i64 %kind, label %kernel [ i64 $CALL, label %call
                                    i64 $LOOP, label %loop
                                    i64 $BRANCH, label %branch
                                    i64 $FOREIGN, label %foreign ]
kernel:
  call void @tetrad.kernel(ptr %frame, ptr %record, ptr %bases)
  br label %after
call:
  call void @tetrad.call(ptr %frame, ptr %record, ptr %bases, ptr %inner)
  br label %after
loop:
  call void @tetrad.loop(ptr %frame, ptr %record, ptr %bases, ptr %inner)
  br label %after
branch:
  call void @tetrad.branch(ptr %frame, ptr %record, ptr %bases, ptr %inner)
  br label %after
foreign:
  call void @tetrad.foreign(ptr %frame, ptr %record, ptr %bases)
  br label %after
after:
  %final = icmp eq i64 %fewer, 0
  %joins = and i1 %final, %outermost
  %f.barrier = and i64 %flags, $BARRIER
  %wants = icmp ne i64 %f.barrier, 0
  %inside = xor i1 %joins, true
  %syncs = and i1 %wants, %inside
  br i1 %syncs, label %sync, label %timed
sync:
  call void @tetrad.barrier(ptr %frame)
  br label %timed
timed:
  br i1 %timing, label %note, label %next
note:
  %stop = $TICKS
  %ticks = sub i64 %stop, %since
  %sum = load i64, ptr %timer
  %total = add i64 %sum, %ticks
  store i64 %total, ptr %timer
  br label %next
next:
  %following = getelementptr i64, ptr %record, i64 %size
  %ended = call i1 @tetrad.ended(ptr %frame)
  %over = or i1 %ended, %final
  br i1 %over, label %done, label %head
done:
  ret void
}
"""

SIGNALS = """
declare i32 @sigaction(i32, ptr, ptr)

@tetrad.victim = internal global ptr null                        ; the stop word SIGINT sets
@tetrad.former = internal global [64 x i64] zeroinitializer      ; struct sigaction before us; the handler comes first

; Both kinds of handler (one argument, or three) are called alike: arguments a handler does not take do no harm. The
; former one comes first: when the run ends because of `stop`, Python already knows of the signal.
define internal void @tetrad.interrupt(i32 %signal, ptr %info, ptr %place) nounwind {
  %former = load ptr, ptr @tetrad.former
  call void %former(i32 %signal, ptr %info, ptr %place)
  %stop = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  %idle = icmp eq ptr %stop, null
  br i1 %idle, label %done, label %set
set:
  store atomic i64 1, ptr %stop monotonic, align 8
  br label %done
done:
  ret void
}

; Not when SIGINT is ignored or kills (no handler to chain to), nor inside another run that has the hook.
; entry -[no handler, or already ours]-> no;  entry -> install -> yes
define internal i1 @tetrad.hook(ptr %stop) nounwind {
entry:
  %action = alloca [64 x i64]
  %got = call i32 @sigaction(i32 2, ptr null, ptr %action)
  %handler = load i64, ptr %action
  %plain = icmp ule i64 %handler, 1
  %ours = icmp eq i64 %handler, ptrtoint (ptr @tetrad.interrupt to i64)
  %skip = or i1 %plain, %ours
  br i1 %skip, label %no, label %install
install:
  call void @llvm.memcpy.p0.p0.i64(ptr @tetrad.former, ptr %action, i64 512, i1 false)
  store atomic ptr %stop, ptr @tetrad.victim monotonic, align 8
  store ptr @tetrad.interrupt, ptr %action
  %set = call i32 @sigaction(i32 2, ptr %action, ptr null)
  ret i1 true
no:
  ret i1 false
}

; Also called in a forked child, which inherits the hook of a run that does not exist there.
define void @tetrad_unhook() nounwind {
  %stop = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  %idle = icmp eq ptr %stop, null
  br i1 %idle, label %done, label %remove
remove:
  %set = call i32 @sigaction(i32 2, ptr @tetrad.former, ptr null)
  store atomic ptr null, ptr @tetrad.victim monotonic, align 8
  br label %done
done:
  ret void
}
"""

RUNS = """
define i64 @tetrad_ticks() nounwind {
  %now = $TICKS
  ret i64 %now
}

define internal void @tetrad.enter(ptr %frame, ptr %ctx, i64 %worker, i64 %threads, ptr %profile) nounwind {
  %scratch.at = getelementptr i64, ptr %ctx, i64 $SCRATCH
  %scratch = load ptr, ptr %scratch.at
  %stride.at = getelementptr i64, ptr %ctx, i64 $STRIDE
  %stride = load i64, ptr %stride.at
  %offset = mul i64 %stride, %worker
  %area = getelementptr i8, ptr %scratch, i64 %offset
  store ptr %ctx, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 1
  store i64 %worker, ptr %worker.at
  %threads.at = getelementptr i64, ptr %frame, i64 2
  store i64 %threads, ptr %threads.at
  %area.at = getelementptr i64, ptr %frame, i64 3
  store ptr %area, ptr %area.at
  %agreed = getelementptr i64, ptr %ctx, i64 $AGREED
  %agreed.at = getelementptr i64, ptr %frame, i64 5
  store ptr %agreed, ptr %agreed.at
  %table.at = getelementptr i64, ptr %ctx, i64 $TABLE
  %table = load ptr, ptr %table.at
  %bases = getelementptr i64, ptr %ctx, i64 $BASES
  call void @tetrad.entries(ptr %frame, ptr %table, ptr %bases, ptr %profile, i1 true)
  ret void
}

; Worker 0 with a team: publish the job, take part, wait for the others, free the pool.
define internal void @tetrad.lead(ptr %frame, ptr %ctx, ptr %pool, i64 %threads, ptr %profile) nounwind {
  %done.at = getelementptr i64, ptr %pool, i64 $DONE
  store atomic i64 0, ptr %done.at monotonic, align 8
  %job.at = getelementptr i64, ptr %pool, i64 $JOB
  store ptr %ctx, ptr %job.at
  %joined.at = getelementptr i64, ptr %pool, i64 $JOINED
  %joined = load atomic i64, ptr %joined.at monotonic, align 8
  %idlers = getelementptr i64, ptr %pool, i64 $IDLERS
  %waiters = getelementptr i64, ptr %pool, i64 $WAITERS
  %epoch = load atomic i64, ptr %pool monotonic, align 8
  %number = lshr i64 %epoch, 16
  %following = add i64 %number, 1
  %shifted = shl i64 %following, 16
  %new = or i64 %shifted, %threads
  ; Workers 1 to threads-1 listen on the bit of their number modulo 32.
  %few = icmp ult i64 %threads, 32
  %power = shl i64 1, %threads
  %numbers = sub i64 %power, 2
  %wide = select i1 %few, i64 %numbers, i64 -1
  %bits = trunc i64 %wide to i32
  call void @tetrad.announce(ptr %pool, i64 %new, ptr %idlers, i32 %bits)
  call void @tetrad.enter(ptr %frame, ptr %ctx, i64 0, i64 %threads, ptr %profile)
  %waited = call { i64, i1 } @tetrad.wait(ptr %joined.at, i64 %joined, ptr %waiters, i32 -1, i64 $LONG_TICKS)
  %busy.at = getelementptr i64, ptr %pool, i64 $BUSY
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
}

; One run of the table in the context: 0, or the trap code, or -1 when it was stopped.
; entry -[hook]-> hook -> size;  entry -> size -[several threads]-> team -[workers there]-> take -[free]-> lead -> leave
; size, team, take -> alone -> leave -[hooked]-> unhook -> result;  leave -> result
define i64 @tetrad_run(ptr %ctx) nounwind {
entry:
  %frame = alloca [8 x i64], align 16
  %float = alloca i32
  %plain = alloca i32
  $SAVE_FLOAT
  $SET_FLOAT
  %value.at = getelementptr i64, ptr %ctx, i64 $VALUE
  %stop.at = getelementptr i64, ptr %ctx, i64 $STOP
  %agreed.at = getelementptr i64, ptr %ctx, i64 $AGREED
  %team.at = getelementptr i64, ptr %ctx, i64 $TEAM
  %patience.at = getelementptr i64, ptr %frame, i64 4
  store i64 0, ptr %ctx
  store i64 0, ptr %value.at
  store atomic i64 0, ptr %stop.at monotonic, align 8
  store i64 0, ptr %agreed.at
  store i64 1, ptr %team.at
  store i64 $LONG_TICKS, ptr %patience.at
  %profile.at = getelementptr i64, ptr %ctx, i64 $PROFILE
  %profile = load ptr, ptr %profile.at
  %options.at = getelementptr i64, ptr %ctx, i64 $OPTIONS
  %options = load i64, ptr %options.at
  %wanted = and i64 %options, 65535
  %f.hook = and i64 %options, $HOOK
  %hooks = icmp ne i64 %f.hook, 0
  br i1 %hooks, label %hook, label %size
hook:
  %installed = call i1 @tetrad.hook(ptr %stop.at)
  br label %size
size:
  %hooked = phi i1 [ false, %entry ], [ %installed, %hook ]
  %several = icmp ugt i64 %wanted, 1
  br i1 %several, label %team, label %alone
team:
  %pool.at = getelementptr i64, ptr %ctx, i64 $POOL
  %pool = load ptr, ptr %pool.at
  %ready.at = getelementptr i64, ptr %pool, i64 $READY
  %ready = load atomic i64, ptr %ready.at acquire, align 8
  %present = add i64 %ready, 1
  %threads = call i64 @llvm.umin.i64(i64 %wanted, i64 %present)
  %enough = icmp ugt i64 %threads, 1
  br i1 %enough, label %take, label %alone
take:
  %busy.at = getelementptr i64, ptr %pool, i64 $BUSY
  %took = cmpxchg ptr %busy.at, i64 0, i64 1 acq_rel monotonic
  %free = extractvalue { i64, i1 } %took, 1
  br i1 %free, label %lead, label %alone
lead:
  store i64 %threads, ptr %team.at
  call void @tetrad.lead(ptr %frame, ptr %ctx, ptr %pool, i64 %threads, ptr %profile)
  br label %leave
alone:
  call void @tetrad.enter(ptr %frame, ptr %ctx, i64 0, i64 1, ptr %profile)
  br label %leave
leave:
  br i1 %hooked, label %unhook, label %result
unhook:
  call void @tetrad_unhook()
  br label %result
result:
  $RESTORE_FLOAT
  %status = load atomic i64, ptr %ctx acquire, align 8
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %halted = icmp ne i64 %stop, 0
  %trapped = icmp ne i64 %status, 0
  %minus = select i1 %halted, i64 -1, i64 0
  %code = select i1 %trapped, i64 %status, i64 %minus
  ret i64 %code
}

; A worker's life. It takes its number after it has read the epoch, so a job that counts on it is news to it.
; entry -[too late]-> home;  entry -> head -[exit]-> home;  head -> look -[takes part]-> work -[last]-> tell -> again
; work -> again -> head;  look -> skip -> head
define void @tetrad_work(ptr %pool) nounwind {
entry:
  %frame = alloca [8 x i64], align 16
  %float = alloca i32
  %plain = alloca i32
  $SAVE_FLOAT
  $SET_FLOAT
  %patience.at = getelementptr i64, ptr %frame, i64 4
  store i64 $LONG_TICKS, ptr %patience.at
  %idlers = getelementptr i64, ptr %pool, i64 $IDLERS
  %ready.at = getelementptr i64, ptr %pool, i64 $READY
  %job.at = getelementptr i64, ptr %pool, i64 $JOB
  %done.at = getelementptr i64, ptr %pool, i64 $DONE
  %joined.at = getelementptr i64, ptr %pool, i64 $JOINED
  %waiters = getelementptr i64, ptr %pool, i64 $WAITERS
  %oldest = load atomic i64, ptr %pool acquire, align 8
  %others = atomicrmw add ptr %ready.at, i64 1 acq_rel
  %worker = add i64 %others, 1
  %narrow = trunc i64 %worker to i32
  %place = and i32 %narrow, 31
  %bits = shl i32 1, %place
  %crowd = and i64 %oldest, 65535
  %late = icmp eq i64 %crowd, $EXIT
  br i1 %late, label %home, label %head
head:
  %seen = phi i64 [ %oldest, %entry ], [ %epoch, %skip ], [ %epoch, %again ]
  %patience = phi i64 [ $IDLE_TICKS, %entry ], [ 0, %skip ], [ $IDLE_TICKS, %again ]
  %waited = call { i64, i1 } @tetrad.wait(ptr %pool, i64 %seen, ptr %idlers, i32 %bits, i64 %patience)
  %epoch = extractvalue { i64, i1 } %waited, 0
  %threads = and i64 %epoch, 65535
  %exit = icmp eq i64 %threads, $EXIT
  br i1 %exit, label %home, label %look
look:
  %mine = icmp ult i64 %worker, %threads
  br i1 %mine, label %work, label %skip
skip:
  br label %head
work:
  %ctx = load ptr, ptr %job.at
  call void @tetrad.enter(ptr %frame, ptr %ctx, i64 %worker, i64 %threads, ptr null)
  %before = atomicrmw add ptr %done.at, i64 1 acq_rel
  %crew = sub i64 %threads, 2
  %last = icmp eq i64 %before, %crew
  br i1 %last, label %tell, label %again
tell:
  call void @tetrad.announce(ptr %joined.at, i64 %epoch, ptr %waiters, i32 -1)
  br label %again
again:
  br label %head
home:
  $RESTORE_FLOAT
  ret void
}

; Send all workers home for good, unless a run is using them: then 0, ask again.
define i64 @tetrad_stop(ptr %pool) nounwind {
  %busy.at = getelementptr i64, ptr %pool, i64 $BUSY
  %idlers = getelementptr i64, ptr %pool, i64 $IDLERS
  %took = cmpxchg ptr %busy.at, i64 0, i64 1 acq_rel monotonic
  %free = extractvalue { i64, i1 } %took, 1
  br i1 %free, label %send, label %later
send:
  %epoch = load atomic i64, ptr %pool monotonic, align 8
  %exit = or i64 %epoch, $EXIT
  call void @tetrad.announce(ptr %pool, i64 %exit, ptr %idlers, i32 -1)
  ret i64 1
later:
  ret i64 0
}
"""

INTRINSICS = """
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


COLD = ("wait", "announce", "agree", "foreign", "copy", "begin", "settle", "loop", "branch")


def cold(functions: str, names: tuple[str, ...] = ()) -> str:
    """Code that runs once a call, or once a loop (by `names`): it is not worth the time to optimise it."""
    if not names:
        return functions.replace("nounwind {", "nounwind noinline optnone {")
    header = re.compile(rf"^(define .*@tetrad\.(?:{'|'.join(names)})\(.*nounwind) {{$", re.MULTILINE)
    return header.sub(r"\1 noinline optnone {", functions)


def native_text(target: Target, futex: bool | None = None) -> str:
    """The module; `futex` False takes the portable way to sleep, None takes what the target's system has."""
    machine = MACHINES.get(target.triple.partition("-")[0])
    if machine is None:
        raise CompileError(f"no native runtime for {target.triple}", hint="machines: " + ", ".join(MACHINES))
    if futex is None:
        futex = "linux" in target.triple
    numbers = {
        **CONTEXT, **POOL, **KINDS, **FLAGS, "HOOK": HOOK, "EXIT": EXIT, "YIELDS": YIELDS,
        "IDLE_TICKS": IDLE_TICKS, "LONG_TICKS": LONG_TICKS, "SHORT_TICKS": SHORT_TICKS,
    }  # fmt: skip
    rare = cold((FUTEX if futex else NAP) + SIGNALS + RUNS)
    body = INTRINSICS + machine["DECLARE"] + cold(WAITING + ENTRIES, COLD) + rare
    return f'target triple = "{target.triple}"\n' + Template(body).substitute(machine, **numbers)
