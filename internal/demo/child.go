package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a child may take to end by itself before it is killed.
const stopGrace = 30 * time.Second

// endedError is the end of a child that nobody asked for.
type endedError struct{ name, how, last string }

// Error implements error.
func (e *endedError) Error() string {
	return fmt.Sprintf("%s ended by itself (%s): %s", e.name, e.how, e.last)
}

// childEnded reports whether that is what ended ctx.
func childEnded(ctx context.Context) bool {
	var e *endedError
	return errors.As(context.Cause(ctx), &e)
}

// child is a process of the demo. Its standard error goes to a log file.
type child struct {
	name  string
	cmd   *exec.Cmd
	log   *logFile
	leash io.Closer     // its standard input
	ended chan struct{} // closed when it has ended
	err   error         // how, valid then

	mu       sync.Mutex
	stopping bool
}

// start runs a program. Each line it logs goes to the file at logPath and to line, if that is not nil. When it ends
// without having been asked to, gone is told.
func start(name, logPath string, line func(string), gone func(error), path string, args ...string) (*child, io.Reader, error) {
	log, err := newLogFile(logPath, line)
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, cmd: exec.Command(path, args...), log: log, ended: make(chan struct{})}
	c.cmd.Stderr = log
	// Its own process group: a Ctrl-C at the terminal is for the demo, which ends its children in order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The pipes are files, so that Wait does not close the output before its reader has read it.
	out, outW, err := os.Pipe()
	if err != nil {
		_ = log.Close()
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.cmd.Stdout = outW
	if c.leash, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	outW.Close()
	if err != nil {
		out.Close()
		_ = log.Close()
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		err := c.cmd.Wait()
		_ = log.Close() // it is for people; what it lacks is no failure of the child
		c.mu.Lock()
		asked := c.stopping
		c.mu.Unlock()
		if err != nil {
			c.err = fmt.Errorf("%s: %w", name, err)
		}
		if !asked {
			gone(&endedError{name: name, how: c.cmd.ProcessState.String(), last: log.last()})
		}
		close(c.ended)
	}()
	return c, out, nil
}

// stop ends the child and waits for it: a signal and the end of its input, then, after a grace, a kill. It returns how
// its end went wrong.
func (c *child) stop() error {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	c.leash.Close()
	kill := time.AfterFunc(stopGrace, func() { _ = c.cmd.Process.Kill() })
	<-c.ended
	if !kill.Stop() {
		return errors.Join(fmt.Errorf("%s had to be killed: it did not end within %s", c.name, stopGrace), c.err)
	}
	return c.err
}

// logFile passes complete lines on to a file and a listener.
type logFile struct {
	file *os.File
	line func(string)
	mu   sync.Mutex
	part []byte
	tail string
}

// longestLine bounds what is held of a line that does not end.
const longestLine = 64 << 10

func newLogFile(path string, line func(string)) (*logFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &logFile{file: f, line: line}, nil
}

// Write implements io.Writer.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, b...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 {
			break
		}
		l.tail = string(l.part[:i])
		l.part = l.part[i+1:]
		if l.line != nil {
			l.line(l.tail)
		}
	}
	if len(l.part) > longestLine {
		l.part = nil
	}
	return l.file.Write(b)
}

// last is the last complete line.
func (l *logFile) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail
}

// Close closes the file.
func (l *logFile) Close() error { return l.file.Close() }

// receive waits for a value from a child, or for the end of ctx, whose cause says why there will be none.
func receive[T any](ctx context.Context, patience time.Duration, from <-chan T) (T, error) {
	var zero T
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v, nil
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	case <-timer.C:
		return zero, fmt.Errorf("nothing within %s", patience)
	}
}
