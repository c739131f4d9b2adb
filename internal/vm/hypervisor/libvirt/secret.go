package libvirt

import (
	"context"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// Secrets are keys of Ceph users where QEMU gets them from: in libvirtd's memory, and gone with it (ephemeral), and for no client to read back (private). A secret's usage has its UUID between
// hyphens: one that has not is somebody else's, and is neither replaced nor removed.
type Secrets struct{ Of *Hypervisor }

// Define makes a secret, or replaces the value of one of ours. Conflict: the UUID or the usage is another's. Invalid: the usage lacks the UUID.
func (s Secrets) Define(ctx context.Context, uuid, usage string, value []byte) error {
	id, err := parseUUID(uuid)
	if err != nil {
		return err
	}
	if !ours(uuid, usage) {
		return vm.Errorf(vm.Invalid, "secret %s: its usage %q must have its UUID between hyphens", uuid, usage)
	}
	text, err := xml.Marshal(&libvirtxml.Secret{Ephemeral: "yes", Private: "yes", UUID: uuid, Usage: &libvirtxml.SecretUsage{Type: "ceph", Name: usage}})
	if err != nil {
		return err
	}
	what := "secret " + uuid
	return s.Of.quick(ctx, what, func(l *link) error {
		there, err := l.SecretLookupByUUID(id)
		if err == nil && there.UsageID != usage {
			return vm.Errorf(vm.Conflict, "%s: it is there for %q", what, there.UsageID)
		}
		if err != nil && !is(err, golibvirt.ErrNoSecret) {
			return err
		}
		made, err := l.SecretDefineXML(string(text), 0)
		if err != nil {
			return err
		}
		return l.SecretSetValue(made, value, 0)
	})
}

// Undefine removes a secret of ours. What is not there is removed; what is another's stays.
func (s Secrets) Undefine(ctx context.Context, uuid string) error {
	id, err := parseUUID(uuid)
	if err != nil {
		return err
	}
	return s.Of.quick(ctx, "secret "+uuid, func(l *link) error {
		there, err := l.SecretLookupByUUID(id)
		if is(err, golibvirt.ErrNoSecret) || err == nil && !ours(uuid, there.UsageID) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.SecretUndefine(there); err != nil && !is(err, golibvirt.ErrNoSecret) {
			return err
		}
		return nil
	})
}

func ours(uuid, usage string) bool { return strings.Contains(usage, "-"+uuid+"-") }

// parseUUID reads one in its usual form.
func parseUUID(uuid string) (id golibvirt.UUID, err error) {
	if err := hypervisor.CheckUUID(uuid); err != nil {
		return id, err
	}
	b, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil {
		return id, vm.Errorf(vm.Invalid, "UUID: %w", err)
	}
	if len(b) != len(id) {
		return id, fmt.Errorf("UUID %q: must have %d bytes", uuid, len(id))
	}
	copy(id[:], b)
	return id, nil
}
