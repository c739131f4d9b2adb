package wrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The variables of the contract.
const (
	EnvEmulator      = "VIRTLET_EMULATOR"
	EnvNetKey        = "VIRTLET_NET_KEY"
	EnvContainerID   = "VIRTLET_CONTAINER_ID"
	EnvLogPath       = "VIRTLET_CONTAINER_LOG_PATH"
	EnvNetworkDevice = "VIRTLET_NETWORK_DEVICE"
	EnvCPUSets       = "VIRTLET_CPUSETS"
)

// Bounds. A machine has at most MaxCards cards: more do not fit its first PCI bus beside what package domain puts there.
const (
	MaxCards = 16
	maxValue = 4096
	maxCPU   = 1023 // unix.CPUSet ends there
)

// Key says where a pod's taps are had, as the value of VIRTLET_NET_KEY: "ID:TOKEN@SOCKET".
type Key struct {
	// ID is the pod's at the network process, Token what Add or Recover gave, Socket the absolute path of the process's socket.
	ID, Token, Socket string
}

func (k Key) String() string { return k.ID + ":" + k.Token + "@" + k.Socket }

var (
	idForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)
	macForm   = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	cpusForm  = regexp.MustCompile(`^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$`)
)

// ParseKey reads a Key. Its errors do not repeat the token.
func ParseKey(text string) (Key, error) {
	id, rest, ok := strings.Cut(text, ":")
	token, socket, ok2 := strings.Cut(rest, "@")
	switch k := (Key{ID: id, Token: token, Socket: socket}); {
	case !ok || !ok2:
		return Key{}, errors.New("must be ID:TOKEN@SOCKET")
	case !idForm.MatchString(id):
		return Key{}, fmt.Errorf("ID %.64q: must be 1 to 128 letters, digits, '_', '.' and '-', and begin with a letter or digit", id)
	case !tokenForm.MatchString(token):
		return Key{}, errors.New("TOKEN: must be 1 to 256 letters, digits, '_' and '-'")
	case !absolute(socket) || len(socket) > 107:
		return Key{}, fmt.Errorf("SOCKET %.128q: must be an absolute path of at most 107 bytes", socket)
	default:
		return k, nil
	}
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' })
}

// Request is what the environment asks for.
type Request struct {
	// Emulator is QEMU; "": a probe of capabilities, and nothing else is set.
	Emulator string
	// Key is nil for a machine without cards.
	Key *Key
	// Driver is QEMU's name of the card's model.
	Driver string
	// CPUs are those that QEMU may use, ascending; none: all.
	CPUs []int
	// env is QEMU's environment.
	env []string
}

// Read judges an environment. The error names every variable that breaks its rule.
func Read(env []string) (Request, error) {
	values := map[string]string{}
	r := Request{Driver: "virtio-net-pci"}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok { // as libc reads it
			values[name] = value
		}
		if name != EnvNetKey {
			r.env = append(r.env, v)
		}
	}
	emulator, ok := values[EnvEmulator]
	if !ok {
		return Request{env: slices.Clone(env)}, nil
	}
	var errs []error
	bad := func(name, rule string, args ...any) { errs = append(errs, fmt.Errorf(name+": "+rule, args...)) }
	if r.Emulator = emulator; !absolute(emulator) || len(emulator) > maxValue {
		bad(EnvEmulator, "%.128q: must be the absolute path of QEMU", emulator)
	}
	if id := values[EnvContainerID]; !idForm.MatchString(id) {
		bad(EnvContainerID, "%.128q: must be 1 to 128 letters, digits, '_', '.' and '-', and begin with a letter or digit", id)
	}
	if p, ok := values[EnvLogPath]; ok && (!absolute(p) || len(p) > maxValue) {
		bad(EnvLogPath, "%.128q: must be an absolute path", p)
	}
	if text, ok := values[EnvNetKey]; ok {
		k, err := ParseKey(text)
		if r.Key = &k; err != nil {
			bad(EnvNetKey, "%w", err)
		}
	}
	if device, ok := values[EnvNetworkDevice]; ok {
		driver, known := map[string]string{"virtio": "virtio-net-pci", "e1000": "e1000", "e1000e": "e1000e"}[device]
		if r.Driver = driver; !known {
			bad(EnvNetworkDevice, "%.64q: must be virtio, e1000 or e1000e", device)
		}
	}
	if list, ok := values[EnvCPUSets]; ok {
		var err error
		if r.CPUs, err = cpus(list); err != nil {
			bad(EnvCPUSets, "%w", err)
		}
	}
	return r, errors.Join(errs...)
}

// cpus reads a list such as 0-3,8.
func cpus(list string) ([]int, error) {
	if len(list) > maxValue || !cpusForm.MatchString(list) {
		return nil, fmt.Errorf("%.64q: must be a list such as 0-3,8", list)
	}
	set := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from > to || to > maxCPU {
			return nil, fmt.Errorf("%q: must go from a CPU to one that is not before it, up to %d", part, maxCPU)
		}
		for c := from; c <= to; c++ {
			set[c] = true
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// Card is a network card, and the descriptor of its tap in this process.
type Card struct {
	// Name is the link's in the pod, for messages. MAC is in lower case. MTU is in bytes, 0: not told.
	Name, MAC  string
	MTU        int
	Descriptor int
}

// Command is what this process becomes.
type Command struct {
	Path string
	Argv []string
	Env  []string
	// Inherit are the descriptors that must stay open.
	Inherit []int
	// CPUs are Request's.
	CPUs []int
}

// nic is QEMU's -device in its JSON form: QEMU makes such a device in the order of its arguments, after libvirt's, which have their slots by then. It
// takes the lowest free slot, the same one each time.
type nic struct {
	Driver string `json:"driver"`
	ID     string `json:"id"`
	Netdev string `json:"netdev"`
	MAC    string `json:"mac"`
	Bus    string `json:"bus"`
	// ROM is empty: nothing boots by network, and the file may not be there.
	ROM string `json:"romfile"`
	// MTU is told to a guest by virtio alone.
	MTU int `json:"host_mtu,omitempty"`
}

// Build makes QEMU's command from libvirt's arguments, argv[0] included, and the cards. fallback is the QEMU of a probe.
func Build(r Request, argv []string, cards []Card, fallback string) (Command, error) {
	c := Command{Path: r.Emulator, Env: r.env, CPUs: r.CPUs}
	if len(argv) == 0 {
		return Command{}, errors.New("there are no arguments, not even a name")
	}
	if r.Emulator == "" {
		if !absolute(fallback) {
			return Command{}, fmt.Errorf("%s is not set, and no QEMU was found to ask", EnvEmulator)
		}
		c.Path = fallback
	}
	c.Argv = append([]string{c.Path}, argv[1:]...)
	if len(cards) > MaxCards {
		return Command{}, fmt.Errorf("%d network cards; a machine has at most %d", len(cards), MaxCards)
	}
	used := map[int]bool{}
	for i, card := range cards {
		switch {
		case r.Key == nil:
			return Command{}, fmt.Errorf("card %.32q: there is no %s", card.Name, EnvNetKey)
		case !macForm.MatchString(card.MAC):
			return Command{}, fmt.Errorf("card %.32q: MAC %.32q: must be six pairs of hex digits in lower case", card.Name, card.MAC)
		case card.MTU != 0 && (card.MTU < 68 || card.MTU > 65535):
			return Command{}, fmt.Errorf("card %.32q: MTU %d: must be 68 to 65535", card.Name, card.MTU)
		case card.Descriptor < 3 || used[card.Descriptor]:
			return Command{}, fmt.Errorf("card %.32q: descriptor %d: must be 3 or more, and its own", card.Name, card.Descriptor)
		}
		used[card.Descriptor] = true
		n := strconv.Itoa(i)
		device := nic{Driver: r.Driver, ID: "muster-nic" + n, Netdev: "muster-net" + n, MAC: card.MAC, Bus: "pci.0"}
		if r.Driver == "virtio-net-pci" {
			device.MTU = card.MTU
		}
		text, err := json.Marshal(device)
		if err != nil {
			return Command{}, err
		}
		c.Argv = append(c.Argv, "-netdev", "tap,id=muster-net"+n+",fd="+strconv.Itoa(card.Descriptor), "-device", string(text))
		c.Inherit = append(c.Inherit, card.Descriptor)
	}
	return c, nil
}
