"""The native loop, waiting: LLVM text of sleeping and waking, waiting for a word to change, and the
barrier.

A word that others will change is watched for a moment, then slept upon. FUTEX and NAP are two ways
to sleep, of which a system has one; WAITING stands on either.

A worker that does not come may wait for its processor: some other thread turns there (those of
OpenBLAS do for a tenth of a second after every call), and a scheduler takes milliseconds to part
them. So worker 0, before it sleeps, looks whether the others run, and brings those that do not to
its own processor, which it is about to leave. After a moment it sends them away again: most threads
that come between (an event loop that answers) run for less than that. Where one stays, a worker
comes back at once, and may then stay longer.
"""

from __future__ import annotations

# Linux system calls, by the numbers the processor's file has. Those of futex: WAIT_BITSET 9,
# WAKE_BITSET 10, PRIVATE 128. The clock that counts the time of thread n is (~n << 3) | 6.
FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @tetrad.yield() nounwind {
  %ignored = call i64 (i64, ...) @syscall(i64 $SCHED_YIELD)
  ret void
}

; Sleep while the low half of the word is that of %old; `bits` says who may be woken apart from the
; others.
define internal void @tetrad.sleep(ptr %word, i64 %old, i32 %bits) nounwind {
  %low = trunc i64 %old to i32
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 137, i32 %low, ptr null,
                                          ptr null, i32 %bits)
  ret void
}

define internal void @tetrad.wake(ptr %word, i32 %bits) nounwind {
  %all = add i32 0, 2147483647
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 138, i32 %all, ptr null,
                                          ptr null, i32 %bits)
  ret void
}

define void @tetrad_set_nap(ptr %nanosleep) nounwind {
  ret void
}

define internal i64 @tetrad.number() nounwind {
  %number = call i64 (i64, ...) @syscall(i64 $GETTID)
  ret i64 %number
}

; Nanoseconds of the current second for which a thread has run.
define internal i64 @tetrad.ran(i64 %number) nounwind {
  %time = alloca [2 x i64]
  %part.at = getelementptr i64, ptr %time, i64 1
  store i64 0, ptr %part.at
  %flipped = xor i64 %number, -1
  %shifted = shl i64 %flipped, 3
  %clock = or i64 %shifted, 6
  %ignored = call i64 (i64, ...) @syscall(i64 $CLOCK_GETTIME, i64 %clock, ptr %time)
  %part = load i64, ptr %part.at
  ret i64 %part
}

; Does a thread run now? It is watched for some microseconds.
; entry -> watch -[time left]-> watch;  watch -> compare
define internal i1 @tetrad.runs(i64 %number) nounwind {
entry:
  %before = call i64 @tetrad.ran(i64 %number)
  %start = $TICKS
  br label %watch
watch:
  $PAUSE
  %now = $TICKS
  %spent = sub i64 %now, %start
  %more = icmp ult i64 %spent, $WATCH_TICKS
  br i1 %more, label %watch, label %compare
compare:
  %after = call i64 @tetrad.ran(i64 %number)
  %runs = icmp ne i64 %before, %after
  ret i1 %runs
}

; Have a thread run here; afterwards it may go where workers may. Nothing happens on a processor of
; a high number.
; entry -[high number]-> done;  entry -> move -> done
define internal void @tetrad.bring(ptr %pool, i64 %number) nounwind {
entry:
  %cpu.at = alloca i64
  %set = alloca [$PROCESSOR_WORDS x i64]
  store i64 0, ptr %cpu.at
  %got = call i64 (i64, ...) @syscall(i64 $GETCPU, ptr %cpu.at, ptr null, ptr null)
  %cpu = load i64, ptr %cpu.at
  %word = lshr i64 %cpu, 6
  %known = icmp ult i64 %word, $PROCESSOR_WORDS
  br i1 %known, label %move, label %done
move:
  store [$PROCESSOR_WORDS x i64] zeroinitializer, ptr %set
  %place = and i64 %cpu, 63
  %bit = shl i64 1, %place
  %word.at = getelementptr i64, ptr %set, i64 %word
  store i64 %bit, ptr %word.at
  %bytes = shl i64 $PROCESSOR_WORDS, 3
  %moved = call i64 (i64, ...) @syscall(i64 $SETAFFINITY, i64 %number, i64 %bytes, ptr %set)
  %all = getelementptr i64, ptr %pool, i64 $PROCESSORS
  %freed = call i64 (i64, ...) @syscall(i64 $SETAFFINITY, i64 %number, i64 %bytes, ptr %all)
  call void @tetrad.note_arrival(ptr %pool)
  br label %done
done:
  ret void
}

; A worker was brought; if one left only lately, it may stay twice as long.
define internal void @tetrad.note_arrival(ptr %pool) nounwind {
  %came.at = getelementptr i64, ptr %pool, i64 $CAME
  %left.at = getelementptr i64, ptr %pool, i64 $LEFT
  %stay.at = getelementptr i64, ptr %pool, i64 $STAY
  %fetched.at = getelementptr i64, ptr %pool, i64 $FETCHED
  %now = $TICKS
  %left = load i64, ptr %left.at
  %away = sub i64 %now, %left
  %soon = icmp ult i64 %away, $SOON_TICKS
  %stay = load i64, ptr %stay.at
  %double = shl i64 %stay, 1
  %enough = call i64 @llvm.umax.i64(i64 %double, i64 $STAY_TICKS)
  %longer = call i64 @llvm.umin.i64(i64 %enough, i64 $MOST_STAY_TICKS)
  %next = select i1 %soon, i64 %longer, i64 $STAY_TICKS
  store i64 %next, ptr %stay.at
  store i64 %now, ptr %came.at
  store atomic i64 1, ptr %fetched.at monotonic, align 8
  ret void
}

; Worker 0 sends the workers to other processors than its own, if it brought some and they have
; stayed for their time. Not where threads are more than processors.
; entry -[not worker 0, or none brought]-> done;  entry -> guests -[time left, or no room]-> done;
;   guests -> send -> head -[no worker left]-> sent -> done;  head -> move -> head
define internal void @tetrad.part(ptr %frame) nounwind {
entry:
  %cpu.at = alloca i64
  %set = alloca [$PROCESSOR_WORDS x i64]
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %pool.at = getelementptr i64, ptr %ctx, i64 $POOL
  %pool = load ptr, ptr %pool.at
  %fetched.at = getelementptr i64, ptr %pool, i64 $FETCHED
  %fetched = load atomic i64, ptr %fetched.at monotonic, align 8
  %leads = icmp eq i64 %worker, 0
  %brought = icmp eq i64 %fetched, 1
  %look = and i1 %leads, %brought
  br i1 %look, label %guests, label %done
guests:
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
  %threads = load i64, ptr %threads.at
  %places.at = getelementptr i64, ptr %pool, i64 $PLACES
  %places = load i64, ptr %places.at
  %came.at = getelementptr i64, ptr %pool, i64 $CAME
  %came = load i64, ptr %came.at
  %stay.at = getelementptr i64, ptr %pool, i64 $STAY
  %stay = load i64, ptr %stay.at
  %now = $TICKS
  %stayed = sub i64 %now, %came
  %over = icmp uge i64 %stayed, %stay
  %room = icmp ule i64 %threads, %places
  %go = and i1 %over, %room
  br i1 %go, label %send, label %done
send:
  store i64 0, ptr %cpu.at
  %got = call i64 (i64, ...) @syscall(i64 $GETCPU, ptr %cpu.at, ptr null, ptr null)
  %cpu = load i64, ptr %cpu.at
  %all = getelementptr i64, ptr %pool, i64 $PROCESSORS
  %bytes = shl i64 $PROCESSOR_WORDS, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %set, ptr %all, i64 %bytes, i1 false)
  %shifted = lshr i64 %cpu, 6
  %most = sub i64 $PROCESSOR_WORDS, 1
  %word = call i64 @llvm.umin.i64(i64 %shifted, i64 %most)
  %place = and i64 %cpu, 63
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %word.at = getelementptr i64, ptr %set, i64 %word
  %these = load i64, ptr %word.at
  %rest = and i64 %these, %others
  store i64 %rest, ptr %word.at
  %numbers = getelementptr i64, ptr %pool, i64 $NUMBERS
  br label %head
head:
  %who = phi i64 [ 1, %send ], [ %following, %move ]
  %left = icmp ult i64 %who, %threads
  br i1 %left, label %move, label %sent
move:
  %number.at = getelementptr i64, ptr %numbers, i64 %who
  %number = load atomic i64, ptr %number.at monotonic, align 8
  %moved = call i64 (i64, ...) @syscall(i64 $SETAFFINITY, i64 %number, i64 %bytes, ptr %set)
  %following = add i64 %who, 1
  br label %head
sent:
  %left.at = getelementptr i64, ptr %pool, i64 $LEFT
  store i64 %now, ptr %left.at
  store atomic i64 2, ptr %fetched.at monotonic, align 8
  br label %done
done:
  ret void
}

; Bring the workers that have not set %mark and do not run. Not more often than it is worth.
; entry -[not worker 0, or looked lately]-> done;  entry -> first -> head -[no worker left]-> done;
;   head -> check
; check -[arrived]-> next;  check -> look -[runs]-> next;  look -> bring -> next -> head
define internal void @tetrad.fetch(ptr %frame, i64 %mark) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
  %threads = load i64, ptr %threads.at
  %claims.at = getelementptr i64, ptr %ctx, i64 $CLAIMS
  %claims = load ptr, ptr %claims.at
  %pool.at = getelementptr i64, ptr %ctx, i64 $POOL
  %pool = load ptr, ptr %pool.at
  %looked.at = getelementptr i64, ptr %pool, i64 $LOOKED
  %looked = load i64, ptr %looked.at
  %now = $TICKS
  %since = sub i64 %now, %looked
  %lately = icmp ult i64 %since, $LOOK_TICKS
  %leads = icmp eq i64 %worker, 0
  %other = xor i1 %leads, true
  %skip = or i1 %lately, %other
  br i1 %skip, label %done, label %first
first:
  store i64 %now, ptr %looked.at
  br label %head
head:
  %who = phi i64 [ 1, %first ], [ %following, %next ]
  %left = icmp ult i64 %who, %threads
  br i1 %left, label %check, label %done
check:
  %mark.at = getelementptr [8 x i64], ptr %claims, i64 %who, i64 $MARK
  %marked = load atomic i64, ptr %mark.at monotonic, align 8
  %arrived = icmp eq i64 %marked, %mark
  br i1 %arrived, label %next, label %look
look:
  %numbers = getelementptr i64, ptr %pool, i64 $NUMBERS
  %number.at = getelementptr i64, ptr %numbers, i64 %who
  %number = load atomic i64, ptr %number.at monotonic, align 8
  %runs = call i1 @tetrad.runs(i64 %number)
  br i1 %runs, label %next, label %bring
bring:
  call void @tetrad.bring(ptr %pool, i64 %number)
  br label %next
next:
  %following = add i64 %who, 1
  br label %head
done:
  ret void
}
"""

# Elsewhere a sleeper looks again every 100 us; nanosleep comes as an address, because only a few
# names may be linked.
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

define internal i64 @tetrad.number() nounwind {
  ret i64 0
}

define internal void @tetrad.fetch(ptr %frame, i64 %mark) nounwind {
  ret void
}

define internal void @tetrad.part(ptr %frame) nounwind {
  ret void
}
"""

WAITING = """
; Wait until the word is not %old; the flag says that spinning was in vain. With a %frame the others
; are waited for, who set their %mark.
; entry -[changed]-> quick;  entry -> spin;  spin -[changed]-> quick;
;   spin -> pause -[patience]-> spin;  pause -> yield
; yield -[changed]-> slow;  yield -> counted -[tries left]-> yield;  counted -> tired -> sleep
; tired -[others]-> fetch -> sleep;  sleep -[changed]-> slow;  sleep -> sleep
define internal { i64, i1 } @tetrad.wait(ptr %word, i64 %old, ptr %sleepers, i32 %bits,
                                         i64 %patience, ptr %frame, i64 %mark) nounwind {
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
  br i1 %again, label %yield, label %tired
tired:
  %others = icmp ne ptr %frame, null
  br i1 %others, label %fetch, label %sleep
fetch:
  call void @tetrad.fetch(ptr %frame, i64 %mark)
  br label %sleep
sleep:
  ; The waker changes the word and then looks for sleepers; we announce ourselves and then look at
  ; the word.
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

; Trap code or stop word: nonzero means that no further kernel should start. A signal that waits for
; this is told.
; entry -[none waits]-> look;  entry -> whose -[the owner's thread]-> tell -> look;  whose -> look
define internal i64 @tetrad.trouble(ptr %ctx) nounwind {
entry:
  %pending = load atomic i64, ptr @tetrad.pending monotonic, align 8
  %waits = icmp ne i64 %pending, 0
  br i1 %waits, label %whose, label %look
whose:
  %thread = call ptr @llvm.thread.pointer()
  %owner = load atomic ptr, ptr @tetrad.owner monotonic, align 8
  %mine = icmp eq ptr %thread, %owner
  br i1 %mine, label %tell, label %look
tell:
  call void @tetrad.listen()
  br label %look
look:
  %status = load atomic i64, ptr %ctx monotonic, align 8
  %stop.at = getelementptr i64, ptr %ctx, i64 $STOP
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %both = or i64 %status, %stop
  ret i64 %both
}

; `agreed` lies in the context, known to all. A worker that runs a loop alone has one of its own:
; the others have agreed on nothing yet.
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

; Where a worker has arrived: at the barrier that makes the generation %mark, or (-1) at the end.
define internal void @tetrad.set_mark(ptr %frame, i64 %mark) nounwind {
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %claims.at = getelementptr i64, ptr %ctx, i64 $CLAIMS
  %claims = load ptr, ptr %claims.at
  %mark.at = getelementptr [8 x i64], ptr %claims, i64 %worker, i64 $MARK
  store atomic i64 %mark, ptr %mark.at monotonic, align 8
  ret void
}

; Now, if entries are timed apart.
define internal void @tetrad.note_release(ptr %frame) nounwind {
entry:
  %timed.at = getelementptr i64, ptr %frame, i64 $TIMED
  %timed = load i64, ptr %timed.at
  %untimed = icmp eq i64 %timed, 0
  br i1 %untimed, label %done, label %note
note:
  %ctx = load ptr, ptr %frame
  %released.at = getelementptr i64, ptr %ctx, i64 $RELEASED
  %now = $TICKS
  store atomic i64 %now, ptr %released.at monotonic, align 8
  br label %done
done:
  ret void
}

; entry -[alone]-> solo;  entry -> arrive -[last]-> release;
;   arrive -> wait -[in vain]-> part -> on;
;   wait -> on
define internal void @tetrad.barrier(ptr %frame) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
  %threads = load i64, ptr %threads.at
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %solo, label %arrive
solo:
  call void @tetrad.note_release(ptr %frame)
  call void @tetrad.agree(ptr %frame)
  ret void
arrive:
  %count.at = getelementptr i64, ptr %ctx, i64 $COUNT
  %dozers = getelementptr i64, ptr %ctx, i64 $DOZERS
  %gen.at = getelementptr i64, ptr %ctx, i64 $GENERATION
  %gen = load atomic i64, ptr %gen.at monotonic, align 8
  %following = add i64 %gen, 1
  call void @tetrad.set_mark(ptr %frame, i64 %following)
  %before = atomicrmw add ptr %count.at, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %last = icmp eq i64 %arrived, %threads
  br i1 %last, label %release, label %wait
release:
  store atomic i64 0, ptr %count.at monotonic, align 8
  call void @tetrad.note_release(ptr %frame)
  call void @tetrad.agree(ptr %frame)
  call void @tetrad.announce(ptr %gen.at, i64 %following, ptr %dozers, i32 -1)
  ret void
wait:
  %patience.at = getelementptr i64, ptr %frame, i64 $PATIENCE
  %patience = load i64, ptr %patience.at
  %waited = call { i64, i1 } @tetrad.wait(ptr %gen.at, i64 %gen, ptr %dozers, i32 -1, i64 %patience,
                                           ptr %frame, i64 %following)
  %vain = extractvalue { i64, i1 } %waited, 1
  %half = lshr i64 %patience, 1
  %double = shl i64 %patience, 1
  %less = call i64 @llvm.umax.i64(i64 %half, i64 $SHORT_TICKS)
  %more = call i64 @llvm.umin.i64(i64 %double, i64 $LONG_TICKS)
  %adapted = select i1 %vain, i64 %less, i64 %more
  store i64 %adapted, ptr %patience.at
  br i1 %vain, label %part, label %on
part:
  call void @tetrad.part(ptr %frame)
  br label %on
on:
  ret void
}
"""
