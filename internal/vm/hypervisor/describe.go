package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Namespace is the XML namespace of our element "owner" in a domain's metadata, as package domain writes it.
const Namespace = "https://vm.muster.dev/domain/1"

// MaxXML is the longest description that is read, in bytes.
const MaxXML = 1 << 20

// Owner says whose a machine is.
type Owner struct {
	Container string `xml:"container,attr"`
	Sandbox   string `xml:"sandbox,attr"`
	// Pod is namespace/name, UID the pod's.
	Pod string `xml:"pod,attr"`
	UID string `xml:"uid,attr"`
}

// ParseOwner reads our element. An error: it is not ours, or names no container.
func ParseOwner(element string) (Owner, error) {
	var o struct {
		XMLName xml.Name
		Owner
	}
	if len(element) > MaxXML {
		return Owner{}, fmt.Errorf("owner: %d bytes; at most %d are read", len(element), MaxXML)
	}
	if err := xml.Unmarshal([]byte(element), &o); err != nil {
		return Owner{}, fmt.Errorf("owner: %w", err)
	}
	// libvirt gives the element without the namespace that it was asked for by.
	if o.XMLName.Local != "owner" || (o.XMLName.Space != Namespace && o.XMLName.Space != "") || o.Container == "" {
		return Owner{}, errors.New("owner: it is not ours, or names no container")
	}
	return o.Owner, nil
}

// Description is what is read of a domain's XML here.
type Description struct {
	UUID, Name string
	Owner      Owner
	// VCPUs is how many CPUs the machine starts with, MaxVCPUs how many it can have.
	VCPUs, MaxVCPUs int
	// Memory is in bytes.
	Memory uint64
	// Console is the socket of the first serial port, "" if it has none.
	Console string
	// Agent says that there is a port for the guest agent.
	Agent bool
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// nameForm keeps names out of the way of paths.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// Describe reads a description. Errors are Invalid and name the element.
func Describe(text string) (Description, error) {
	if len(text) > MaxXML {
		return Description{}, vm.Errorf(vm.Invalid, "domain: the XML has %d bytes; at most %d are taken", len(text), MaxXML)
	}
	var x struct {
		XMLName xml.Name `xml:"domain"`
		Name    string   `xml:"name"`
		UUID    string   `xml:"uuid"`
		Meta    struct {
			Owner []Owner `xml:"https://vm.muster.dev/domain/1 owner"`
		} `xml:"metadata"`
		Memory struct {
			Unit  string `xml:"unit,attr"`
			Value uint64 `xml:",chardata"`
		} `xml:"memory"`
		VCPU struct {
			Current int `xml:"current,attr"`
			Value   int `xml:",chardata"`
		} `xml:"vcpu"`
		Devices struct {
			Serials []struct {
				Source struct {
					Path string `xml:"path,attr"`
				} `xml:"source"`
			} `xml:"serial"`
			Channels []struct {
				Target struct {
					Name string `xml:"name,attr"`
				} `xml:"target"`
			} `xml:"channel"`
		} `xml:"devices"`
	}
	d := xml.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&x); err != nil {
		return Description{}, vm.Errorf(vm.Invalid, "domain: it is no XML of a domain: %w", err)
	}
	for { // what a hypervisor would read otherwise than we do is none of ours
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if space, ok := token.(xml.CharData); err != nil || !ok || strings.TrimSpace(string(space)) != "" {
			return Description{}, vm.Errorf(vm.Invalid, "domain: something follows the element domain")
		}
	}
	out := Description{
		UUID: strings.ToLower(strings.TrimSpace(x.UUID)), Name: strings.TrimSpace(x.Name),
		VCPUs: max(x.VCPU.Value, 1), MaxVCPUs: max(x.VCPU.Value, 1),
	}
	if x.VCPU.Current > 0 {
		out.VCPUs = min(x.VCPU.Current, out.MaxVCPUs)
	}
	unit, ok := map[string]uint64{"": 1 << 10, "b": 1, "bytes": 1, "KiB": 1 << 10, "k": 1 << 10, "MiB": 1 << 20, "M": 1 << 20, "GiB": 1 << 30, "G": 1 << 30}[x.Memory.Unit]
	switch {
	case !uuidForm.MatchString(out.UUID):
		return Description{}, vm.Errorf(vm.Invalid, "domain: uuid %.64q: must be 8-4-4-4-12 hex digits", x.UUID)
	case !nameForm.MatchString(out.Name):
		return Description{}, vm.Errorf(vm.Invalid, "domain %s: name %.128q: must be 1 to 100 letters, digits, '_', '.' and '-', and begin with none of the last two", out.UUID, x.Name)
	case len(x.Meta.Owner) != 1 || x.Meta.Owner[0].Container == "":
		return Description{}, vm.Errorf(vm.Invalid, "domain %s: metadata: needs one element owner of %s that names a container", out.UUID, Namespace)
	case !ok || x.Memory.Value == 0 || x.Memory.Value > 1<<62/unit:
		return Description{}, vm.Errorf(vm.Invalid, "domain %s: memory: %d %q: needs a size in b, KiB, MiB or GiB", out.UUID, x.Memory.Value, x.Memory.Unit)
	}
	out.Owner, out.Memory = x.Meta.Owner[0], x.Memory.Value*unit
	if len(x.Devices.Serials) > 0 {
		out.Console = x.Devices.Serials[0].Source.Path
	}
	for _, c := range x.Devices.Channels {
		out.Agent = out.Agent || c.Target.Name == "org.qemu.guest_agent.0"
	}
	return out, nil
}

// CheckUUID says whether a text is a UUID in lower case; its error is Invalid.
func CheckUUID(uuid string) error {
	if !uuidForm.MatchString(uuid) {
		return vm.Errorf(vm.Invalid, "machine %.64q: must be called by a UUID in lower case", uuid)
	}
	return nil
}
