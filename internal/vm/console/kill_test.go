package console

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// childDir, in the environment, makes this program a runtime that serves the console in that folder until it is killed.
const childDir = "MUSTER_TEST_CONSOLE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		o := testOptions(dir)
		o.Now = nil
		ticks := time.NewTicker(time.Millisecond)
		o.Tick = ticks.C
		c, err := Open(o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		c.Run(context.Background())
	}
	os.Exit(m.Run())
}

// killed runs a runtime in a process of its own, and kills it as soon as the log has grown by some bytes, or when over is closed.
func killed(t *testing.T, dir string, bytes int64, over <-chan struct{}) {
	t.Helper()
	log := filepath.Join(dir, "0.log")
	before := size(t, log)
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	must(t, child.Start())
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for size(t, log) < before+bytes {
		select {
		case <-look.C:
			continue
		case <-over:
		case <-limit:
			t.Error("the log does not grow")
		}
		break
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
}

// size is 0 for what is not there.
func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// finishHere does what is left in this process.
func finishHere(t *testing.T, dir string) {
	t.Helper()
	w := testWriter(t, testOptions(dir))
	defer w.close()
	must(t, drain(w, true))
}

// TestKilled: SIGKILL of a real process, again and again, while a guest speaks.
func TestKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "console")
	must(t, err)
	defer os.RemoveAll(dir)
	g := &guest{t: t, raw: filepath.Join(dir, "console.out")}
	g.say("booting\n")
	stop, said := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(said)
		pause := time.NewTicker(time.Millisecond)
		defer pause.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-pause.C:
				g.say(strings.Repeat(fmt.Sprintf("line %d\r\n", i), 1+i%300))
			}
		}
	}()
	for i := range 15 {
		killed(t, dir, int64(1+i*3000), nil)
	}
	close(stop)
	<-said
	finishHere(t, dir)
	same(t, "the log", logged(t, filepath.Join(dir, "0.log")), told(g.said.String(), true))
}

const bootLines = 0x1000

// bootSector is a machine's whole disk: it writes the numbers from 0000 to 0fff to the first serial port, a line each, then what it reads there first, and ends QEMU.
func bootSector() []byte {
	code := []byte{
		0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, // xor ax,ax; mov ds,ax; mov ss,ax; mov sp,7c00
		0x31, 0xdb, // xor bx,bx
		0xb9, 0x04, 0x00, // line: mov cx,4
		0xc1, 0xc3, 0x04, // digit: rol bx,4
		0x88, 0xd8, 0x24, 0x0f, 0x04, '0', // mov al,bl; and al,15; add al,'0'
		0x3c, '9', 0x76, 0x02, 0x04, 39, // cmp al,'9'; jbe put; add al,39
		0xe8, 0, 0, // put: call putc
		0xe2, 0xec, // loop digit
		0xb0, '\r', 0xe8, 0, 0, // mov al,CR; call putc
		0xb0, '\n', 0xe8, 0, 0, // mov al,LF; call putc
		0xb9, 0xff, 0xff, 0xe2, 0xfe, // mov cx,ffff; loop here
		0x43, 0x81, 0xfb, bootLines & 0xff, bootLines >> 8, // inc bx; cmp bx,lines
		0x75, 0xd3, // jne line
		0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb, // mov dx,3fd; key: in al,dx; test al,1; jz key
		0xba, 0xf8, 0x03, 0xec, 0xe8, 0, 0, // mov dx,3f8; in al,dx; call putc
		0xb0, 0x00, 0xe6, 0xf4, // mov al,0; out f4,al: QEMU's isa-debug-exit
		0xf4, 0xeb, 0xfd, // hlt; jmp back
		// putc: mov ah,al; mov dx,3fd; wait: in al,dx; test al,20; jz wait; mov dx,3f8; mov al,ah; out dx,al; ret
		0x88, 0xc4, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0xba, 0xf8, 0x03, 0x88, 0xe0, 0xee, 0xc3,
	}
	putc := len(code) - 17
	for i := range code {
		if code[i] == 0xe8 && code[i+1] == 0 && code[i+2] == 0 {
			binary.LittleEndian.PutUint16(code[i+1:], uint16(putc-(i+3)))
		}
	}
	disk := make([]byte, 64<<10)
	copy(disk, code)
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// TestQEMU: a real machine counts on its serial port, set up as libvirt sets it up, while its runtime is killed again and again, and is away for a while; the log has each number
// once.
func TestQEMU(t *testing.T) {
	if os.Getenv("MUSTER_VM_MACHINES") == "" {
		t.Skip("NOT CHECKED: a real machine's console; make test-vm does")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("NOT CHECKED: a real machine's console: there is no qemu-system-x86_64")
	}
	dir, err := os.MkdirTemp("", "console")
	must(t, err)
	defer os.RemoveAll(dir)
	o := testOptions(dir)
	disk := filepath.Join(dir, "disk")
	must(t, os.WriteFile(disk, bootSector(), 0o600))
	machine := exec.Command(qemu, "-accel", "tcg", "-m", "16", "-display", "none", "-nodefaults", "-no-user-config",
		"-drive", "file="+disk+",format=raw,if=ide", "-device", "isa-debug-exit,iobase=0xf4,iosize=1",
		"-chardev", "pipe,id=c,path="+o.Pipe, "-device", "isa-serial,chardev=c")
	input, err := openPipe(o)
	must(t, err)
	input.Close() // the runtime that started the machine has died
	must(t, machine.Start())
	over := make(chan struct{})
	go func() {
		_ = machine.Wait() // isa-debug-exit gives 1
		close(over)
	}()
	defer func() { _ = machine.Process.Kill() }()
	runs := 0
	limit := time.After(3 * patience)
	for size(t, o.raw()) < 6*bootLines {
		killed(t, dir, 1, over) // as long as the machine counts, one more line comes
		runs++
		select {
		case <-limit:
			t.Fatal("the machine does not end")
		case <-over:
			t.Fatal("the machine has ended")
		default:
		}
	}
	// Whatever has become of runtimes, the next one can type.
	input, err = openPipe(o)
	must(t, err)
	defer input.Close()
	_, err = input.WriteString("K")
	must(t, err)
	select {
	case <-over:
	case <-limit:
		t.Fatal("the machine does not end")
	}
	finishHere(t, dir)
	var want []string
	for i := range bootLines {
		want = append(want, fmt.Sprintf("stdout F %04x", i))
	}
	want = append(want, "stdout P K")
	t.Logf("%d runtimes were killed", runs)
	same(t, "the log", logged(t, o.Log), want)
}
