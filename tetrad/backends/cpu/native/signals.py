"""The native loop, signals: LLVM text that has Python run its handlers while the main thread is in
a run.

Which signals those are comes with each run (`backends.cpu.listen`). What a handler raises is kept
for Python to raise again.
"""

from __future__ import annotations

SIGNALS = """
declare i32 @sigaction(i32, ptr, ptr)
declare ptr @llvm.thread.pointer()
declare i64 @llvm.cttz.i64(i64, i1)

; Of the one run that listens. Python runs its handlers in the main thread alone, which is busy
; here: a handler of ours chains to Python's, which notes the signal, and then lets the thread run
; what Python has for it.
; its stop word; its thread
@tetrad.victim = internal global ptr null
@tetrad.owner = internal global ptr null
; may handlers run in the middle of a kernel?
@tetrad.anytime = internal global i64 0
; signals it listens to: bit n is signal n
@tetrad.hooked = internal global i64 0
; one came at a moment when handlers may not run
@tetrad.pending = internal global i64 0
; handlers run now
@tetrad.listening = internal global i64 0
; what one of them raised, as PyErr_Fetch gives it
@tetrad.raised = internal global [3 x ptr] zeroinitializer

; signals whose former action is noted; struct sigaction before us, the handler first
@tetrad.known = internal global i64 0
@tetrad.former = internal global [64 x [24 x i64]] zeroinitializer
; functions, as `backends.cpu.listen` lists them
@tetrad.python = internal global [4 x ptr] zeroinitializer

define void @tetrad_set_python(ptr %functions) nounwind {
  call void @llvm.memcpy.p0.p0.i64(ptr @tetrad.python, ptr %functions, i64 32, i1 false)
  ret void
}

; What a handler raised, for Python to raise again; null if none did.
define void @tetrad_raised(ptr %out) nounwind {
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr @tetrad.raised, i64 24, i1 false)
  store [3 x ptr] zeroinitializer, ptr @tetrad.raised
  ret void
}

; Have Python run its handlers, in the owner's thread. The run goes on if they return, and ends if
; one raises. A signal that comes meanwhile finds us listening: Python hears of it by itself, or we
; ask again.
; entry -> begin -[listening, or one has raised]-> done;  begin -> ask -[raised]-> keep -> release;
;   ask -> release
; release -[another came]-> begin;  release -> done
define internal void @tetrad.listen() nounwind {
entry:
  %ensure = load ptr, ptr @tetrad.python
  %check.at = getelementptr ptr, ptr @tetrad.python, i64 1
  %check = load ptr, ptr %check.at
  %fetch.at = getelementptr ptr, ptr @tetrad.python, i64 2
  %fetch = load ptr, ptr %fetch.at
  %release.at = getelementptr ptr, ptr @tetrad.python, i64 3
  %let.go = load ptr, ptr %release.at
  %value.at = getelementptr ptr, ptr @tetrad.raised, i64 1
  %trace.at = getelementptr ptr, ptr @tetrad.raised, i64 2
  store atomic i64 1, ptr @tetrad.pending monotonic, align 8
  br label %begin
begin:
  %before = atomicrmw xchg ptr @tetrad.listening, i64 1 monotonic
  %nested = icmp ne i64 %before, 0
  br i1 %nested, label %done, label %ask
ask:
  store atomic i64 0, ptr @tetrad.pending monotonic, align 8
  %lock = call i32 %ensure()
  %code = call i32 %check()
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %release, label %keep
keep:
  ; `listening` stays set: the run is about to end, and what else comes is Python's to hear.
  call void %fetch(ptr @tetrad.raised, ptr %value.at, ptr %trace.at)
  %stop = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  store atomic i64 1, ptr %stop monotonic, align 8
  call void %let.go(i32 %lock)
  br label %done
release:
  call void %let.go(i32 %lock)
  store atomic i64 0, ptr @tetrad.listening monotonic, align 8
  %more = load atomic i64, ptr @tetrad.pending monotonic, align 8
  %again = icmp ne i64 %more, 0
  br i1 %again, label %begin, label %done
done:
  ret void
}

; Both kinds of handler (one argument, or three) are called alike: arguments a handler does not take
; do no harm. The owner was interrupted in code of ours, which holds no lock and allocates nothing,
; so it may enter Python here; not so any other thread, nor the owner of a run that calls other
; libraries: then it is told between two kernels.
; entry -[owner, any time]-> now -[Python set its handler again]-> renew -> done;  now -> done;
;   entry -> later -> done
define internal void @tetrad.heard(i32 %signal, ptr %info, ptr %place) nounwind {
entry:
  %number = zext i32 %signal to i64
  %former.at = getelementptr [24 x i64], ptr @tetrad.former, i64 %number
  %former = load ptr, ptr %former.at
  call void %former(i32 %signal, ptr %info, ptr %place)
  %thread = call ptr @llvm.thread.pointer()
  %owner = load atomic ptr, ptr @tetrad.owner monotonic, align 8
  %mine = icmp eq ptr %thread, %owner
  %anytime = load atomic i64, ptr @tetrad.anytime monotonic, align 8
  %may = icmp ne i64 %anytime, 0
  %at.once = and i1 %mine, %may
  br i1 %at.once, label %now, label %later
now:
  call void @tetrad.listen()
  %action = alloca [24 x i64]
  %got = call i32 @sigaction(i32 %signal, ptr null, ptr %action)
  %handler = load ptr, ptr %action
  %lost = icmp eq ptr %handler, %former
  %victim = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  %lasts = icmp ne ptr %victim, null
  %renews = and i1 %lost, %lasts
  br i1 %renews, label %renew, label %done
renew:
  call void @tetrad.install(i64 %number, ptr %action)
  br label %done
later:
  store atomic i64 1, ptr @tetrad.pending monotonic, align 8
  br label %done
done:
  ret void
}

; Our handler for a signal; %old gets the action it had. Flags: SA_SIGINFO 4, and SA_NODEFER
; 1 << 30, because handlers of Python never wait for one another. Not SA_ONSTACK, which Python
; sets: an alternate stack is too small for Python.
define internal void @tetrad.install(i64 %number, ptr %old) nounwind {
  %action = alloca [24 x i64]
  store [24 x i64] zeroinitializer, ptr %action
  store ptr @tetrad.heard, ptr %action
  %flags.at = getelementptr i8, ptr %action, i64 136
  store i32 1073741828, ptr %flags.at
  %signal = trunc i64 %number to i32
  %set = call i32 @sigaction(i32 %signal, ptr %action, ptr %old)
  ret void
}

; Not inside another run that listens. A signal that is ignored or kills in truth (no handler to
; chain to) stays so.
; entry -[another]-> no;  entry -> start -> head -[none left]-> yes;
;   head -> one -[not noted yet]-> note -> seen
; one -> seen -[no handler]-> next;  seen -> set -> next -> head
define internal i1 @tetrad.hook(ptr %stop, i64 %signals, i64 %anytime) nounwind {
entry:
  %old = alloca [24 x i64]
  %other = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  %taken = icmp ne ptr %other, null
  br i1 %taken, label %no, label %start
start:
  %thread = call ptr @llvm.thread.pointer()
  store atomic i64 0, ptr @tetrad.pending monotonic, align 8
  store atomic i64 0, ptr @tetrad.listening monotonic, align 8
  store atomic i64 %anytime, ptr @tetrad.anytime monotonic, align 8
  store atomic ptr %stop, ptr @tetrad.victim monotonic, align 8
  store atomic ptr %thread, ptr @tetrad.owner monotonic, align 8
  store i64 0, ptr @tetrad.hooked
  br label %head
head:
  %left = phi i64 [ %signals, %start ], [ %rest, %next ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %one, label %yes
one:
  %number = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %bit = xor i64 %left, %rest
  %signal = trunc i64 %number to i32
  %former = getelementptr [24 x i64], ptr @tetrad.former, i64 %number
  %known = load i64, ptr @tetrad.known
  %noted = and i64 %known, %bit
  %is.noted = icmp ne i64 %noted, 0
  br i1 %is.noted, label %seen, label %note
note:
  %got = call i32 @sigaction(i32 %signal, ptr null, ptr %former)
  %more = or i64 %known, %bit
  store i64 %more, ptr @tetrad.known
  br label %seen
seen:
  %handler = load i64, ptr %former
  %plain = icmp ule i64 %handler, 1
  br i1 %plain, label %forget, label %set
forget:
  %cleared = load i64, ptr @tetrad.known
  %without = xor i64 %cleared, %bit
  store i64 %without, ptr @tetrad.known
  br label %next
set:
  call void @tetrad.install(i64 %number, ptr %old)
  %hooked = load i64, ptr @tetrad.hooked
  %now = or i64 %hooked, %bit
  store i64 %now, ptr @tetrad.hooked
  %found = load i64, ptr %old
  %same = icmp eq i64 %found, %handler
  br i1 %same, label %next, label %changed
changed:
  ; Somebody has another handler now: that is the one to chain to, or, if it is none, to leave
  ; alone.
  call void @llvm.memcpy.p0.p0.i64(ptr %former, ptr %old, i64 192, i1 false)
  %none = icmp ule i64 %found, 1
  br i1 %none, label %undo, label %next
undo:
  %undone = call i32 @sigaction(i32 %signal, ptr %old, ptr null)
  store i64 %hooked, ptr @tetrad.hooked
  br label %forget
next:
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}

; Also called in a forked child, which inherits the hooks of a run that does not exist there. What
; was set meanwhile by a handler (Python's again, or none) stays.
; entry -[no run listens]-> done;  entry -> head -[none left]-> end -> done;
;   head -> one -[not ours]-> keep -> head
; one -> head
define void @tetrad_unhook() nounwind {
entry:
  %now = alloca [24 x i64]
  %stop = load atomic ptr, ptr @tetrad.victim monotonic, align 8
  %idle = icmp eq ptr %stop, null
  %signals = load i64, ptr @tetrad.hooked
  br i1 %idle, label %done, label %head
head:
  %left = phi i64 [ %signals, %entry ], [ %rest, %one ], [ %rest, %keep ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %one, label %end
one:
  %number = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %signal = trunc i64 %number to i32
  %former = getelementptr [24 x i64], ptr @tetrad.former, i64 %number
  %set = call i32 @sigaction(i32 %signal, ptr %former, ptr %now)
  %handler = load ptr, ptr %now
  %ours = icmp eq ptr %handler, @tetrad.heard
  br i1 %ours, label %head, label %keep
keep:
  %kept = call i32 @sigaction(i32 %signal, ptr %now, ptr null)
  br label %head
end:
  store i64 0, ptr @tetrad.hooked
  store atomic ptr null, ptr @tetrad.owner monotonic, align 8
  store atomic ptr null, ptr @tetrad.victim monotonic, align 8
  store atomic i64 0, ptr @tetrad.pending monotonic, align 8
  br label %done
done:
  ret void
}
"""
