package network

import (
	"errors"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/dhcp"
)

// The verbs of the socket: Virtlet's four, List, Status, and Collect.
const (
	verbAdd     = "add"
	verbRelease = "release"
	verbGet     = "get"
	verbRecover = "recover"
	verbList    = "list"
	verbStatus  = "status"
	verbCollect = "collect"
)

var verbs = []string{verbAdd, verbRelease, verbGet, verbRecover, verbList, verbStatus, verbCollect}

// Bounds of bodies, in bytes. A Get is an id and a token.
const (
	maxRequest    = 1 << 20
	maxGetRequest = 4 << 10
	maxResponse   = 16 << 20
)

// request is one call: a connection has one, and one response.
type request struct {
	Verb  string `json:"verb"`
	Pod   *Pod   `json:"pod,omitempty"`
	ID    string `json:"id,omitempty"`
	Token string `json:"token,omitempty"`
	Dry   bool   `json:"dry,omitempty"`
}

type response struct {
	Error    *wireError `json:"error,omitempty"`
	Attached *Attached  `json:"attached,omitempty"`
	Taps     []Tap      `json:"taps,omitempty"`
	Pods     []Listed   `json:"pods,omitempty"`
	Garbage  []Garbage  `json:"garbage,omitempty"`
}

type wireError struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Attached is a pod's network, ready for a machine.
type Attached struct {
	Network vm.Network `json:"network"`
	// Netns is the path of the pod's network namespace.
	Netns string `json:"netns"`
	// Token lets whoever has it Get the taps, once.
	Token string `json:"token"`
}

// Tap is what a wrapper needs for one card, besides the descriptor.
type Tap struct {
	// Name, MAC and MTU are the card's, as in vm.Interface.
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu,omitempty"`
	// Descriptor is the place of the tap's descriptor among those that came: a tap opened with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR, of
	// one queue.
	Descriptor int `json:"descriptor"`
}

// Listed is what List tells of a pod.
type Listed struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// State is "adding", "ready" or "removing".
	State   string     `json:"state"`
	Netns   string     `json:"netns"`
	Network vm.Network `json:"network"`
	// Leases are those that the guest was seen to take since this process started.
	Leases []dhcp.Lease `json:"leases,omitempty"`
}

// kindNames are the kinds of error on the wire. A name that a client does not know is Internal.
func kindNames() map[vm.Kind]string {
	return map[vm.Kind]string{
		vm.Internal: "Internal", vm.Invalid: "Invalid", vm.NotFound: "NotFound", vm.Conflict: "Conflict", vm.Unavailable: "Unavailable", vm.Exhausted: "Exhausted",
	}
}

func toWire(err error) *wireError {
	const most = 8 << 10 // a plugin may have much to say
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return &wireError{Kind: kindNames()[vm.KindOf(err)], Text: text}
}

func fromWire(e *wireError) error {
	for kind, name := range kindNames() { // order: names are distinct
		if name == e.Kind && kind != vm.Internal {
			return vm.Errorf(kind, "%s", e.Text)
		}
	}
	return errors.New(e.Text)
}
