package console

import (
	"bytes"
	"fmt"
	"time"
)

// MaxLine is the most bytes of text in one entry of the log, as in containerd.
const MaxLine = 16 << 10

// lookahead is how many bytes decide about an entry: a full line, CR and LF.
const lookahead = MaxLine + 2

// entry is one line of the log, without its time. text is a part of what it was made from.
type entry struct {
	stream string // "stdout" is the guest's
	full   bool   // tag F, else P
	text   []byte
}

// next is the first entry of what a guest has said, and how many bytes of it that takes: 0 if more has to be known. end says that there is no more.
func next(said []byte, end bool) (e entry, taken int) {
	e.stream = "stdout"
	if i := bytes.IndexByte(said[:min(len(said), lookahead)], '\n'); i >= 0 {
		text := said[:i]
		if i > 0 && text[i-1] == '\r' {
			text = text[:i-1]
		}
		if len(text) <= MaxLine {
			e.text, e.full = text, true
			return e, i + 1
		}
	} else if len(said) < lookahead && !end || len(said) == 0 {
		return e, 0
	}
	e.text = said[:min(len(said), MaxLine)]
	return e, len(e.text)
}

// appendTo adds the entry as a line of the log.
func (e entry) appendTo(out []byte, now time.Time) []byte {
	out = now.UTC().AppendFormat(out, time.RFC3339Nano)
	out = append(out, ' ')
	return append(e.appendText(out), '\n')
}

// appendText adds the entry without its time and the line's end.
func (e entry) appendText(out []byte) []byte {
	out = append(append(out, e.stream...), ' ')
	if e.full {
		out = append(out, "F "...)
	} else {
		out = append(out, "P "...)
	}
	return append(out, e.text...)
}

// withoutTime is a line of the log as appendText has it.
func withoutTime(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(" "))
	return rest
}

// lossEntry tells the log's reader what is missing.
func lossEntry(lost int64, unknown bool) entry {
	text := fmt.Sprintf("[muster-vm: %d bytes of the console are missing here: the log could not be written as fast as the guest spoke]", lost)
	if unknown {
		text = fmt.Sprintf("[muster-vm: a part of the console is missing here, of at least %d bytes: its file was taken away or cut before it was read]", lost)
	}
	return entry{stream: "stderr", full: true, text: []byte(text)}
}
