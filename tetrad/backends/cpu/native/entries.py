"""The native loop, entries: LLVM text that walks a table and executes its entries; those that
repeat are in `loops`.

A record is what `backends.cpu.table` wrote: kind, size, flags and profile slot (HEADER_WORDS), then
what is said above the function of its kind. `bases` are the addresses that the words of a table are
relative to.
"""

from __future__ import annotations

from tetrad.schedule.lapack import MOST_ARGUMENTS


def argument_loads() -> str:
    """The arguments of a routine, out of the list in which they stand."""
    return "\n".join(
        f"  %a{i}.at = getelementptr ptr, ptr %list, i64 {i}\n  %a{i} = load ptr, ptr %a{i}.at"
        for i in range(MOST_ARGUMENTS)
    )


def arguments() -> str:
    return ", ".join(f"ptr %a{i}" for i in range(MOST_ARGUMENTS))


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

; A kernel whose ranges are taken piece by piece: a worker takes those of its own range, then what
; others have left.
; Pieces are counted where a range belongs, in one word for this entry and another for the next:
; nobody is in the next before all have passed the barrier between them, so its word is cleared
; here.
; entry -> victim -> look -[all taken]-> spent;  look -> take -[too late]-> spent;
;   take -> check -[trouble]-> done
; check -> call -> look;  spent -[more workers]-> victim;  spent -> done
define internal void @tetrad.share(ptr %frame, ptr %record, ptr %function, ptr %args,
                                   i64 %threads) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %scratch.at = getelementptr i64, ptr %frame, i64 $AREA
  %scratch = load ptr, ptr %scratch.at
  %turn.at = getelementptr i64, ptr %frame, i64 $TURN
  %turn = load i64, ptr %turn.at
  %other = xor i64 %turn, 1
  store i64 %other, ptr %turn.at
  %claims.at = getelementptr i64, ptr %ctx, i64 $CLAIMS
  %claims = load ptr, ptr %claims.at
  %own = getelementptr [8 x i64], ptr %claims, i64 %worker, i64 %other
  store atomic i64 0, ptr %own monotonic, align 8
  %groups.at = getelementptr i64, ptr %record, i64 5
  %groups = load i64, ptr %groups.at
  %slice.at = getelementptr i64, ptr %record, i64 6
  %slice = load i64, ptr %slice.at
  %whole = icmp eq i64 %slice, 0
  %most = select i1 %whole, i64 %groups, i64 %slice
  br label %victim
victim:
  %tried = phi i64 [ 0, %entry ], [ %now, %spent ]
  %past = add i64 %worker, %tried
  %over = icmp uge i64 %past, %threads
  %back = select i1 %over, i64 %threads, i64 0
  %who = sub i64 %past, %back
  %p0 = mul i64 %groups, %who
  %begin = udiv i64 %p0, %threads
  %p1 = add i64 %p0, %groups
  %end = udiv i64 %p1, %threads
  %range = sub i64 %end, %begin
  %padded = add i64 %range, $PIECES_LESS
  %even = udiv i64 %padded, $PIECES
  %some = call i64 @llvm.umax.i64(i64 %even, i64 1)
  %piece = call i64 @llvm.umin.i64(i64 %some, i64 %most)
  %claim = getelementptr [8 x i64], ptr %claims, i64 %who, i64 %turn
  br label %look
look:
  %seen = load atomic i64, ptr %claim monotonic, align 8
  %done0 = mul i64 %seen, %piece
  %left0 = icmp ult i64 %done0, %range
  br i1 %left0, label %take, label %spent
take:
  %mine = atomicrmw add ptr %claim, i64 1 monotonic
  %done1 = mul i64 %mine, %piece
  %left1 = icmp ult i64 %done1, %range
  br i1 %left1, label %check, label %spent
check:
  %trouble = call i64 @tetrad.trouble(ptr %ctx)
  %fine = icmp eq i64 %trouble, 0
  br i1 %fine, label %call, label %done
call:
  %from = add i64 %begin, %done1
  %far = add i64 %from, %piece
  %to = call i64 @llvm.umin.i64(i64 %far, i64 %end)
  call void %function(ptr %args, i64 %from, i64 %to, ptr %scratch, ptr %ctx)
  br label %look
spent:
  %now = add i64 %tried, 1
  %others = icmp ult i64 %now, %threads
  br i1 %others, label %victim, label %done
done:
  ret void
}

; One call of a routine of another library, in the place of a kernel's workgroup. Words: routine,
; blocks of a system, number of arguments; then of each: how it is passed, its value, how far this
; moves with the system and with the block, the most it may be. Passed are the value (0), its
; address (1), or the memory so far behind the start of the worker's scratch (2). As many arguments
; are passed as any routine has: the rest lie where one that takes fewer does not look.
; entry -> head -[i < n]-> body -> head;  head -> call
define internal void @tetrad.host(ptr %words, i64 %this, i64 %next, ptr %scratch,
                                  ptr %ctx) nounwind {
entry:
  %values = alloca [$MOST_ARGUMENTS x i64], align 16
  %list = alloca [$MOST_ARGUMENTS x ptr], align 16
  store [$MOST_ARGUMENTS x ptr] zeroinitializer, ptr %list
  %routine = load ptr, ptr %words
  %blocks.at = getelementptr i64, ptr %words, i64 1
  %blocks = load i64, ptr %blocks.at
  %n.at = getelementptr i64, ptr %words, i64 2
  %n = load i64, ptr %n.at
  %first = getelementptr i64, ptr %words, i64 3
  %system = udiv i64 %this, %blocks
  %block = urem i64 %this, %blocks
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %following, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %call
body:
  %argument = getelementptr [5 x i64], ptr %first, i64 %i
  %how = load i64, ptr %argument
  %start.at = getelementptr i64, ptr %argument, i64 1
  %start = load i64, ptr %start.at
  %per.system.at = getelementptr i64, ptr %argument, i64 2
  %per.system = load i64, ptr %per.system.at
  %per.block.at = getelementptr i64, ptr %argument, i64 3
  %per.block = load i64, ptr %per.block.at
  %most.at = getelementptr i64, ptr %argument, i64 4
  %most = load i64, ptr %most.at
  %by.system = mul i64 %system, %per.system
  %by.block = mul i64 %block, %per.block
  %moved = add i64 %by.system, %by.block
  %sum = add i64 %start, %moved
  %value = call i64 @llvm.smin.i64(i64 %sum, i64 %most)
  %value.at = getelementptr i64, ptr %values, i64 %i
  store i64 %value, ptr %value.at
  %plain = inttoptr i64 %value to ptr
  %room = getelementptr i8, ptr %scratch, i64 %value
  %by.address = icmp eq i64 %how, 1
  %in.scratch = icmp eq i64 %how, 2
  %either = select i1 %by.address, ptr %value.at, ptr %plain
  %passed = select i1 %in.scratch, ptr %room, ptr %either
  %to = getelementptr ptr, ptr %list, i64 %i
  store ptr %passed, ptr %to
  %following = add i64 %i, 1
  br label %head
call:
$ARGUMENT_LOADS
  call void %routine($ARGUMENTS)
  ret void
}

; Record: function, groups, slice, number of words, words. Workers split the groups into contiguous
; ranges. A group of a HOST record is a call of a routine.
; entry -[not for me]-> done;  entry -> split -[nothing, and nothing to share]-> done
; split -> prepare -[shared]-> share -> done;  prepare -> head
; head -[trouble]-> done;  head -> call -[more]-> head;  call -> done
define internal void @tetrad.kernel(ptr %frame, ptr %record, ptr %bases) nounwind {
entry:
  %ctx = load ptr, ptr %frame
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %threads.at = getelementptr i64, ptr %frame, i64 $THREADS
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
  %f.shared = and i64 %flags, $SHARED
  %is.shared = icmp ne i64 %f.shared, 0
  %team = icmp ugt i64 %threads, 1
  %shares = and i1 %is.shared, %team
  %some = icmp ult i64 %begin, %end
  %works = or i1 %some, %shares
  br i1 %works, label %prepare, label %done
prepare:
  %function.at = getelementptr i64, ptr %record, i64 4
  %compiled = load ptr, ptr %function.at
  %kind = load i64, ptr %record
  %is.host = icmp eq i64 %kind, $HOST
  %function = select i1 %is.host, ptr @tetrad.host, ptr %compiled
  %slice.at = getelementptr i64, ptr %record, i64 6
  %slice = load i64, ptr %slice.at
  %n.at = getelementptr i64, ptr %record, i64 7
  %n = load i64, ptr %n.at
  %args = alloca i64, i64 %n, align 16
  %pairs = getelementptr i64, ptr %record, i64 8
  call void @tetrad.resolve(ptr %pairs, i64 %n, ptr %bases, ptr %args)
  br i1 %shares, label %share, label %range
share:
  call void @tetrad.share(ptr %frame, ptr %record, ptr %function, ptr %args, i64 %threads)
  br label %done
range:
  %scratch.at = getelementptr i64, ptr %frame, i64 $AREA
  %scratch = load ptr, ptr %scratch.at
  %whole = icmp eq i64 %slice, 0
  %step = select i1 %whole, i64 %groups, i64 %slice
  br label %head
head:
  %from = phi i64 [ %begin, %range ], [ %to, %call ]
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

; The time that ends one entry and begins the next. Where they are timed apart it is that of the
; barrier between them, at which all workers were: worker 0 may be held up before an entry that the
; others then do without it.
define internal i64 @tetrad.instant(ptr %frame) nounwind {
entry:
  %timed.at = getelementptr i64, ptr %frame, i64 $TIMED
  %timed = load i64, ptr %timed.at
  %apart = icmp ne i64 %timed, 0
  br i1 %apart, label %barrier, label %clock
barrier:
  %ctx = load ptr, ptr %frame
  %released.at = getelementptr i64, ptr %ctx, i64 $RELEASED
  %released = load atomic i64, ptr %released.at monotonic, align 8
  ret i64 %released
clock:
  %now = $TICKS
  ret i64 %now
}

; All entries of a table. The last barrier of the outermost table is left out: the end of the run
; takes its place.
; entry -[empty]-> done;  entry -> head -[profile]-> clock -> enter;
;   head -> enter -> one of four -> after
; after -[barrier]-> sync -> timed;  after -> timed -[profile]-> note -> next;  timed -> next
; next -[ended, or no entry left]-> done;  next -> head
define internal void @tetrad.entries(ptr %frame, ptr %table, ptr %bases, ptr %profile,
                                     i1 %outermost) nounwind {
entry:
  %count = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  %timing = icmp ne ptr %profile, null
  %apart.at = getelementptr i64, ptr %frame, i64 $TIMED
  %f.apart = load i64, ptr %apart.at
  %apart = icmp ne i64 %f.apart, 0
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
  %start = call i64 @tetrad.instant(ptr %frame)
  br label %enter
enter:
  %timer = phi ptr [ null, %head ], [ %mine, %clock ]
  %inner = phi ptr [ null, %head ], [ %below, %clock ]
  %since = phi i64 [ 0, %head ], [ %start, %clock ]
  switch i64 %kind, label %kernel [ i64 $CALL, label %call
                                    i64 $LOOP, label %loop
                                    i64 $BRANCH, label %branch ]
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
after:
  %final = icmp eq i64 %fewer, 0
  %joins = and i1 %final, %outermost
  %f.barrier = and i64 %flags, $BARRIER
  %wants = icmp ne i64 %f.barrier, 0
  %inside = xor i1 %joins, true
  %needs = and i1 %wants, %inside
  %syncs = or i1 %needs, %apart
  br i1 %syncs, label %sync, label %timed
sync:
  call void @tetrad.barrier(ptr %frame)
  br label %timed
timed:
  br i1 %timing, label %note, label %next
note:
  %stop = call i64 @tetrad.instant(ptr %frame)
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
