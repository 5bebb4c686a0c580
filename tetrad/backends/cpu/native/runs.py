"""The native loop, runs: LLVM text of the entry points: one run, a worker's life, signals while a
run lasts.

What Python calls is here (SYMBOLS). Every way in saves the floating-point control state, sets its
own, and restores it.
"""

from __future__ import annotations

RUNS = """
define i64 @tetrad_ticks() nounwind {
  %now = $TICKS
  ret i64 %now
}

; entry -[timed apart]-> meet -> run;  entry -> run
define internal void @tetrad.enter(ptr %frame, ptr %ctx, i64 %worker, i64 %threads,
                                   ptr %profile) nounwind {
entry:
  %scratch.at = getelementptr i64, ptr %ctx, i64 $SCRATCH
  %scratch = load ptr, ptr %scratch.at
  %stride.at = getelementptr i64, ptr %ctx, i64 $STRIDE
  %stride = load i64, ptr %stride.at
  %offset = mul i64 %stride, %worker
  %area = getelementptr i8, ptr %scratch, i64 %offset
  store ptr %ctx, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  store i64 %worker, ptr %worker.at
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
  store i64 %threads, ptr %threads.at
  %area.at = getelementptr i64, ptr %frame, i64 $AREA
  store ptr %area, ptr %area.at
  %turn.at = getelementptr i64, ptr %frame, i64 $TURN
  store i64 0, ptr %turn.at
  %options.at = getelementptr i64, ptr %ctx, i64 $OPTIONS
  %options = load i64, ptr %options.at
  %timed = and i64 %options, $APART
  %timed.at = getelementptr i64, ptr %frame, i64 $TIMED
  store i64 %timed, ptr %timed.at
  %agreed = getelementptr i64, ptr %ctx, i64 $AGREED
  %agreed.at = getelementptr i64, ptr %frame, i64 $AGREED_AT
  store ptr %agreed, ptr %agreed.at
  %table.at = getelementptr i64, ptr %ctx, i64 $TABLE
  %table = load ptr, ptr %table.at
  %bases = getelementptr i64, ptr %ctx, i64 $BASES
  %apart = icmp ne i64 %timed, 0
  br i1 %apart, label %meet, label %run
meet:
  call void @tetrad.barrier(ptr %frame)
  br label %run
run:
  call void @tetrad.entries(ptr %frame, ptr %table, ptr %bases, ptr %profile, i1 true)
  ret void
}

; Worker 0 with a team: clear the first claims, publish the job, take part, wait for the others,
; free the pool.
define internal void @tetrad.lead(ptr %frame, ptr %ctx, ptr %pool, i64 %threads,
                                  ptr %profile) nounwind {
entry:
  %claims.at = getelementptr i64, ptr %ctx, i64 $CLAIMS
  %claims = load ptr, ptr %claims.at
  br label %clear
clear:
  %worker = phi i64 [ 0, %entry ], [ %following.worker, %clear ]
  %claim = getelementptr [8 x i64], ptr %claims, i64 %worker
  store atomic i64 0, ptr %claim monotonic, align 8
  %mark.at = getelementptr i64, ptr %claim, i64 $MARK
  store atomic i64 0, ptr %mark.at monotonic, align 8
  %following.worker = add i64 %worker, 1
  %more = icmp ult i64 %following.worker, %threads
  br i1 %more, label %clear, label %publish
publish:
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
  %waited = call { i64, i1 } @tetrad.wait(ptr %joined.at, i64 %joined, ptr %waiters, i32 -1,
                                           i64 $LONG_TICKS, ptr %frame, i64 -1)
  %busy.at = getelementptr i64, ptr %pool, i64 $BUSY
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
}

; One run of the table in the context: 0, or the trap code, or -1 when it was stopped.
; entry -[hook]-> hook -> size;
;   entry -> size -[several threads]-> team -[workers there]-> take -[free]-> lead -> leave
; size, team, take -> alone -> leave -[hooked]-> unhook -> result;  leave -> result
define i64 @tetrad_run(ptr %ctx) nounwind {
entry:
  %frame = alloca [8 x i64], align 16
  %float = alloca i64
  %plain = alloca i64
  $SAVE_FLOAT
  $SET_FLOAT
  %value.at = getelementptr i64, ptr %ctx, i64 $VALUE
  %stop.at = getelementptr i64, ptr %ctx, i64 $STOP
  %agreed.at = getelementptr i64, ptr %ctx, i64 $AGREED
  %team.at = getelementptr i64, ptr %ctx, i64 $TEAM
  %patience.at = getelementptr i64, ptr %frame, i64 $PATIENCE
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
  %signals.at = getelementptr i64, ptr %ctx, i64 $SIGNALS
  %signals = load i64, ptr %signals.at
  %anytime = and i64 %options, $ANYTIME
  %installed = call i1 @tetrad.hook(ptr %stop.at, i64 %signals, i64 %anytime)
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

; A worker's life. It takes its number after it has read the epoch, so a job that counts on it is
; news to it.
; entry -[too late]-> home;  entry -> head -[exit]-> home;
;   head -> look -[takes part]-> work -[last]-> tell -> again
; work -> again -> head;  look -> skip -> head
define void @tetrad_work(ptr %pool) nounwind {
entry:
  %frame = alloca [8 x i64], align 16
  %float = alloca i64
  %plain = alloca i64
  $SAVE_FLOAT
  $SET_FLOAT
  %patience.at = getelementptr i64, ptr %frame, i64 $PATIENCE
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
  %numbers = getelementptr i64, ptr %pool, i64 $NUMBERS
  %number.at = getelementptr i64, ptr %numbers, i64 %worker
  %number = call i64 @tetrad.number()
  store atomic i64 %number, ptr %number.at monotonic, align 8
  %narrow = trunc i64 %worker to i32
  %place = and i32 %narrow, 31
  %bits = shl i32 1, %place
  %crowd = and i64 %oldest, 65535
  %late = icmp eq i64 %crowd, $EXIT
  %fetched.at = getelementptr i64, ptr %pool, i64 $FETCHED
  br i1 %late, label %home, label %head
head:
  %seen = phi i64 [ %oldest, %entry ], [ %epoch, %skip ], [ %epoch, %again ]
  %patience = phi i64 [ $IDLE_TICKS, %entry ], [ 0, %skip ], [ %calm, %again ]
  %waited = call { i64, i1 } @tetrad.wait(ptr %pool, i64 %seen, ptr %idlers, i32 %bits,
                                           i64 %patience, ptr null, i64 0)
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
  call void @tetrad.set_mark(ptr %frame, i64 -1)
  %before = atomicrmw add ptr %done.at, i64 1 acq_rel
  %crew = sub i64 %threads, 2
  %last = icmp eq i64 %before, %crew
  br i1 %last, label %tell, label %again
tell:
  call void @tetrad.announce(ptr %joined.at, i64 %epoch, ptr %waiters, i32 -1)
  br label %again
again:
  ; A worker that was brought to another's processor leaves it at once.
  %fetched = load atomic i64, ptr %fetched.at monotonic, align 8
  %guest = icmp eq i64 %fetched, 1
  %calm = select i1 %guest, i64 0, i64 $IDLE_TICKS
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
