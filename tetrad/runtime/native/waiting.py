"""The native loop, waiting: LLVM text of sleeping and waking, waiting for a word to change, and the barrier.

A word that others will change is watched for a moment, then slept upon. FUTEX and NAP are two ways to sleep, of which a
system has one; WAITING stands on either.
"""

from __future__ import annotations

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

; `agreed` lies in the context, known to all. A worker that runs a loop alone has one of its own: the others have agreed
; on nothing yet.
define internal i1 @tetrad.ended(ptr %frame) nounwind {
  %at.at = getelementptr i64, ptr %frame, i64 $AGREED_AT
  %at = load ptr, ptr %at.at
  %agreed = load atomic i64, ptr %at monotonic, align 8
  %ended = icmp ne i64 %agreed, 0
  ret i1 %ended
}

define internal void @tetrad.agree(ptr %frame) nounwind {
  %ctx = load ptr, ptr %frame
  %trouble = call i64 @tetrad.trouble(ptr %ctx)
  %at.at = getelementptr i64, ptr %frame, i64 $AGREED_AT
  %at = load ptr, ptr %at.at
  store atomic i64 %trouble, ptr %at monotonic, align 8
  ret void
}

; entry -[alone]-> solo;  entry -> arrive -[last]-> release;  arrive -> wait
define internal void @tetrad.barrier(ptr %frame) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
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
  %patience.at = getelementptr i64, ptr %frame, i64 $PATIENCE
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
