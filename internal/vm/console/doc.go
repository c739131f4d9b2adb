// Package console is a guest's serial port: it becomes the container's log in the CRI's form, and whoever attaches sees it and types into it. Nobody
// waits for the slowest.
//
// A scenario. A guest boots and says "login: ". Two people are attached; one has closed the lid of a laptop. The other types, the log grows line by line,
// the kubelet renames it and has it reopened, and the runtime is killed and started again in between: the log has each line once. When the laptop wakes up, its
// stream has what it had room for, "[muster-vm: 734003 bytes are missing here …]", and goes on with what is said now.
//
// # The way
//
//	           ┌─► PIPE.out ─┬─► translator ──► CRI log file
//	guest ◄─► QEMU           └─► attached clients
//	           └─◄ PIPE.in ◄──── attached clients
//
// The serial port is QEMU's "pipe" (<serial type="pipe">), of which the output is no FIFO but a regular file: so everything is on disk as soon as the guest has said it, whoever
// is there, and QEMU never waits for a reader. The FIFO is held open by QEMU itself for both directions, so a runtime that ends does not end the typing of the next.
// A socket would not do: QEMU 7.2 writes a byte twice to its log file when the connection breaks in the midst of a write, and again when the reader is slow. TestQEMU
// found that, and shows that this way has each byte once.
//
// # Each line once
//
// A small state file says how far the raw file has been translated, and how large the log was then. It is written after the log. A process that dies between the two
// leaves lines in the log that the state does not know of; the next one translates them again, finds them there, and writes what
// follows. An entry that was cut short is taken off first. The time of a line is when it was read: what a guest said while nobody was there has the time
// of the return.
//
// # Bounds
//
// What has been translated is taken out of the raw output by punching holes, which races with nobody who writes. If the log cannot be written, or not as fast as the
// guest speaks, the file grows up to Options.Limit; then the oldest of it is left out, and a line of the log says how many bytes. Such lines have the stream
// "stderr", which no guest can write to. What a client does not take in time is left out of its stream, with a mark that says how much.
//
// Two things are not bounded or told here. While no runtime is there, nothing punches holes: the file grows with what the guest says, and all of it is in the log afterwards. And if
// the disk of the raw output itself is full, QEMU drops what does not fit without a word.
//
// # The form of the log
//
// Each entry is "TIME stdout TAG text": TIME in RFC 3339 with nanoseconds, in UTC; TAG is F for what ends a line and P for a part. A line longer than 16 KiB comes as parts
// of 16 KiB. CR LF ends a line as LF does; any other CR, and any other byte, is kept. What has no line's end when the guest ends is a P.
package console
