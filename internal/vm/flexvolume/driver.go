package flexvolume

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Mounts is what the driver does to the machine.
type Mounts interface {
	// Mounted says whether something is mounted at a directory; what is not there has nothing mounted.
	Mounted(dir string) (bool, error)
	// Mount mounts a memory file system that only root can look into.
	Mount(dir string) error
	// Unmount takes the uppermost mount away.
	Unmount(dir string) error
}

// response is what a kubelet reads: DriverStatus of k8s.io/kubernetes/pkg/volume/flexvolume.
type response struct {
	Status       string          `json:"status"`
	Message      string          `json:"message,omitempty"`
	Attached     bool            `json:"attached,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// The statuses of the protocol.
const (
	success      = "Success"
	failure      = "Failure"
	notSupported = "Not supported"
)

// Called says whether a process was started as the driver, and with which arguments for Run: by its name, as kubelets start the file flexvolume_driver in
// their plugin directory, or by the first argument "flexvolume". args are all of the process, its name first.
func Called(args []string) ([]string, bool) {
	switch {
	case len(args) > 0 && path.Base(args[0]) == programName:
		return args[1:], true
	case len(args) > 1 && args[1] == "flexvolume":
		return args[2:], true
	}
	return nil, false
}

const programName = "flexvolume_driver" // as in Driver

// Run answers one call of a kubelet. args are without the program's name. It writes one JSON object to out and gives the process's exit
// code: 0 for success, 1 otherwise. Nothing else may be written to the process's outputs: kubelets read both as one.
func Run(args []string, m Mounts, out io.Writer) int {
	r := answer(args, m)
	text, err := json.Marshal(r)
	if err == nil {
		_, err = out.Write(append(text, '\n'))
	}
	if err != nil || r.Status != success {
		return 1
	}
	return 0
}

func answer(args []string, m Mounts) response {
	fail := func(err error) response {
		return response{Status: failure, Message: strings.ToValidUTF8(err.Error(), "?")}
	}
	if len(args) == 0 {
		return fail(errors.New("a call must be given: init, mount or unmount"))
	}
	call, rest := args[0], args[1:]
	switch call {
	case "init":
		// Without attach, neither kubelets nor the controller manager call for it. What is mounted is no file system of the pod's: nobody is to
		// relabel it or to give it to a group.
		return response{Status: success, Capabilities: map[string]bool{
			"attach": false, "selinuxRelabel": false, "fsGroup": false, "requiresFSResize": false, "supportsMetrics": false,
		}}
	case "attach", "detach", "waitforattach":
		return response{Status: success} // for kubelets that asked an older driver for its capabilities
	case "isattached":
		return response{Status: success, Attached: true}
	case "mount":
		if len(rest) != 2 {
			return fail(fmt.Errorf("mount: must have 2 arguments, a directory and options, has %d", len(rest)))
		}
		if err := mount(m, rest[0], []byte(rest[1])); err != nil {
			return fail(fmt.Errorf("mount %s: %w", short(path.Base(rest[0])), err))
		}
		return response{Status: success}
	case "unmount":
		if len(rest) != 1 {
			return fail(fmt.Errorf("unmount: must have 1 argument, a directory, has %d", len(rest)))
		}
		if err := unmount(m, rest[0]); err != nil {
			return fail(fmt.Errorf("unmount %s: %w", short(path.Base(rest[0])), err))
		}
		return response{Status: success}
	}
	return response{Status: notSupported}
}

// place refuses what is no directory of a volume of this driver.
func place(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || !plain(dir) || path.Base(path.Dir(dir)) != DirName {
		return fmt.Errorf("directory %q: must be an absolute path that ends in %s/NAME, without '..'", short(dir), DirName)
	}
	return nil
}

func mount(m Mounts, dir string, text []byte) (err error) {
	if err := place(dir); err != nil {
		return err
	}
	o, err := object(text)
	if err != nil {
		return err
	}
	delete(o, keyUUID)
	if _, err := judge(o); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	mounted, err := m.Mounted(dir)
	if err != nil {
		return err
	}
	if mounted { // by an earlier call that nobody heard the answer of, or that broke off
		if old, err := readOptions(dir); err == nil {
			uuid := old[keyUUID]
			delete(old, keyUUID)
			if equal(old, o) && uuid != "" {
				return nil
			}
		}
	} else {
		if err := m.Mount(dir); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, m.Unmount(dir))
			}
		}()
	}
	o[keyUUID] = newUUID()
	if text, err = json.Marshal(o); err != nil {
		return err
	}
	return write(dir, text)
}

func equal(a, b map[string]string) bool {
	x, errX := json.Marshal(a) // sorted by key
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// write puts the file there in one step, for root alone.
func write(dir string, text []byte) error {
	part := filepath.Join(dir, FileName+".part")
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(dir, FileName))
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

const maxMounts = 16

func unmount(m Mounts, dir string) error {
	if err := place(dir); err != nil {
		return err
	}
	for range maxMounts { // a kubelet that started anew can have mounted twice
		mounted, err := m.Mounted(dir)
		if err != nil {
			return err
		}
		if !mounted {
			for _, name := range []string{FileName, FileName + ".part"} { // Virtlet left one below its mount
				if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
					return err
				}
			}
			return nil // the directory is the kubelet's
		}
		if err := m.Unmount(dir); err != nil {
			return err
		}
	}
	return fmt.Errorf("directory %q: something is still mounted there after %d times", short(dir), maxMounts)
}

// Read judges the options that the driver left in a volume's directory. The file must be a regular one; no link is followed.
func Read(dir string) (Volume, error) {
	o, err := readOptions(dir)
	if err != nil {
		return Volume{}, err
	}
	return judge(o)
}

func readOptions(dir string) (map[string]string, error) {
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s: must be a regular file", FileName))
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxOptions+128))
	if err != nil {
		return nil, err
	}
	return object(text)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
