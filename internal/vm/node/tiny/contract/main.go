//go:build linux

// Command contract is what a test's machine runs to keep muster-vm's guest contract, which is the key "muster" of a NoCloud meta-data.
//
//	contract prepare META-DATA RESOLV-CONF   mounts the shares, links the disks, and adds the DNS options to a resolv.conf
//	contract config USER-DATA                does what cloud-init does with write_files and runcmd of a #cloud-config; of anything else nothing
//	contract run META-DATA [PORT]            runs the command, and writes its exit code to the port; with neither command nor args it ends with 200
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// nothing is the exit code when there is no command to run.
const nothing = 200

// contract has the fields as the documentation of the guest contract names them.
type contract struct {
	Command, Args, Env []string
	WorkingDir         string
	Mounts             []struct {
		Tag, Path string
		ReadOnly  bool
	}
	Devices    []struct{ Path, Sysfs string }
	DNSOptions []string
}

func main() {
	code, err := contracted(os.Args[1:])
	if err != nil {
		fmt.Println("contract:", err)
	}
	os.Exit(code)
}

func contracted(args []string) (int, error) {
	if len(args) == 2 && args[0] == "config" {
		return configured(args[1])
	}
	prepare := len(args) == 3 && args[0] == "prepare"
	if !prepare && (len(args) < 2 || len(args) > 3 || args[0] != "run") {
		return 2, errors.New("usage: contract prepare META-DATA RESOLV-CONF, contract config USER-DATA, or contract run META-DATA [PORT]")
	}
	var meta struct{ Muster contract }
	text, err := os.ReadFile(args[1])
	if err == nil {
		err = json.Unmarshal(text, &meta)
	}
	if err != nil {
		return nothing, err
	}
	c := &meta.Muster
	if prepare {
		if err := errors.Join(c.resolve(args[2]), c.mount(), c.link()); err != nil {
			return 1, err
		}
		return 0, nil
	}
	code, err := c.run()
	if len(args) == 3 && code != nothing {
		err = errors.Join(err, say(args[2], code))
	}
	return code, err
}

// resolve adds the options to a resolv.conf.
func (c *contract) resolve(file string) error {
	if len(c.DNSOptions) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, "options", strings.Join(c.DNSOptions, " "))
	return errors.Join(err, f.Close())
}

func (c *contract) mount() error {
	for _, m := range c.Mounts {
		flags := uintptr(0)
		if m.ReadOnly {
			flags = syscall.MS_RDONLY
		}
		if err := os.MkdirAll(m.Path, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.Tag, m.Path, "virtiofs", flags, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Tag, m.Path, err)
		}
	}
	return nil
}

func (c *contract) link() error {
	for _, d := range c.Devices {
		found, err := filepath.Glob(d.Sysfs)
		if err != nil || len(found) != 1 {
			return fmt.Errorf("device %s: %d disks match %s: %v", d.Path, len(found), d.Sysfs, err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(d.Path), 0o755), os.Symlink("/dev/"+filepath.Base(found[0]), d.Path)); err != nil {
			return err
		}
	}
	return nil
}

// cloudConfig are the keys of user-data that this guest heeds, in cloud-init's order.
type cloudConfig struct {
	Files []struct {
		Path, Content, Encoding, Permissions string
	} `json:"write_files"`
	Commands []any `json:"runcmd"`
}

// configured gives the exit code of the last command that failed: like cloud-init it goes on with the next.
func configured(file string) (code int, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && !strings.HasPrefix(string(text), "#cloud-config\n") {
		return 0, nil
	}
	var c cloudConfig
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if err != nil {
		return 1, err
	}
	for _, f := range c.Files {
		content := []byte(f.Content)
		if f.Encoding == "b64" {
			if content, err = base64.StdEncoding.DecodeString(f.Content); err != nil {
				return 1, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		mode, err := strconv.ParseUint(f.Permissions, 8, 12)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(f.Path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(f.Path, content, 0o600)
		}
		if err == nil {
			err = os.Chmod(f.Path, os.FileMode(mode))
		}
		if err != nil {
			return 1, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	for _, one := range c.Commands {
		words := []string{"sh", "-c", fmt.Sprint(one)}
		if list, ok := one.([]any); ok {
			words = nil
			for _, w := range list {
				words = append(words, fmt.Sprint(w))
			}
		}
		p := exec.Command(words[0], words[1:]...)
		p.Stdout, p.Stderr = os.Stdout, os.Stderr
		if bad := p.Run(); bad != nil {
			code, err = 1, errors.Join(err, fmt.Errorf("%s: %w", strings.Join(words, " "), bad))
		}
	}
	return code, err
}

// run gives the command's exit code: 127 for one that is not there, 128 and the signal for one that a signal ended.
func (c *contract) run() (int, error) {
	words := append(append([]string(nil), c.Command...), c.Args...)
	if len(words) == 0 {
		return nothing, nil
	}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return 1, err
		}
	}
	p := exec.Command(words[0], words[1:]...)
	p.Dir, p.Stdin, p.Stdout, p.Stderr = c.WorkingDir, os.Stdin, os.Stdout, os.Stderr
	err := p.Run()
	if p.ProcessState == nil {
		return 127, err
	}
	if s, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return p.ProcessState.ExitCode(), nil
}

// say writes the code. A port that nobody reads takes nothing: that is not waited for.
func say(port string, code int) error {
	f, err := os.OpenFile(port, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_ = f.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, err = f.WriteString(strconv.Itoa(code) + "\n")
	return errors.Join(err, f.Close())
}
