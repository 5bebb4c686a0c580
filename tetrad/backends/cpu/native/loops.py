"""The native loop, loops: LLVM text that repeats a table while the bases it sees move on.

A loop shows its body bases of its own: some advance by a stride after every iteration, others are
what the last iteration wrote, in one of two places by turns. After the last iteration what was
carried is brought home.
"""

from __future__ import annotations

LOOPS = """
; Bytes from one place to another that does not overlap it: eight at a time, then one at a time.
; entry -> head -[whole word]-> word -> head;  head -> tail -[byte left]-> byte -> tail;
;   tail -> done
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

; After an iteration. Carries first, records of: base read, base written, home (2 words), spare (2
; words), swaps, bytes.
; What was written is read next; what is written next is the other of home and spare, or the next
; row. Then every base moves on by its stride.
; entry -> carry -[j < m]-> follow -[swaps]-> swap -> carried -> carry;  follow -> carried;
;   carry -> head
; head -[i < n]-> body -> head;  head -> done
define internal void @tetrad.advance(ptr %list, i64 %n, ptr %carries, i64 %m, ptr %bases,
                                     ptr %own) nounwind {
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

; After the loop: carries that do not lie at home are taken there by worker 0. Every worker decides
; alike.
; entry -> head -[j < m]-> look -[away]-> away -[worker 0]-> copy -> next;
;   look, away -> next -> head;  head -> done
define internal void @tetrad.settle(ptr %frame, ptr %carries, i64 %m, ptr %bases,
                                    ptr %own) nounwind {
entry:
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
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

; A loop for all workers, or for worker 0 with a frame that knows no others: its barriers cost
; nothing.
; entry -[alone]-> alone -[worker 0]-> mine -> done;  alone -> done;  entry -> together -> done
define internal void @tetrad.loop(ptr %frame, ptr %record, ptr %bases, ptr %profile) nounwind {
entry:
  %flags.at = getelementptr i64, ptr %record, i64 2
  %flags = load i64, ptr %flags.at
  %f.alone = and i64 %flags, $ALONE
  %is.alone = icmp ne i64 %f.alone, 0
  br i1 %is.alone, label %alone, label %together
alone:
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
  %worker = load i64, ptr %worker.at
  %first = icmp eq i64 %worker, 0
  br i1 %first, label %mine, label %done
mine:
  %own = alloca [8 x i64], align 16
  %agreed = alloca i64
  store i64 0, ptr %agreed
  call void @tetrad.copy(ptr %own, ptr %frame, i64 64)
  %threads.at = getelementptr i64, ptr %own, i64 $THREADS
  store i64 1, ptr %threads.at
  %agreed.at = getelementptr i64, ptr %own, i64 $AGREED_AT
  store ptr %agreed, ptr %agreed.at
  call void @tetrad.repeat(ptr %own, ptr %record, ptr %bases, ptr %profile)
  br label %done
together:
  call void @tetrad.repeat(ptr %frame, ptr %record, ptr %bases, ptr %profile)
  br label %done
done:
  ret void
}

; Record: body, trips (2 words), counter (2 words), until (2 words), number of bases, number of
; carries, both lists.
; A loop without bases of its own shows its body those of its table.
; entry -[trips in memory]-> fetch -> head;  entry -> head
; head -[i = trips]-> done;  head -> look -[condition]-> test -> note;  look -> note
; note -[counter, worker 0]-> count -> meet;  note -> meet -[barrier needed]-> sync -> decide;
;   meet -> decide
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
  %worker.at = getelementptr i64, ptr %frame, i64 $WORKER
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
"""
