package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/muster-scheduler/muster/internal/vm"
)

// golden is a file of testdata/cards: a CNI result of any version, the links that are there, and what becomes of them.
type golden struct {
	Says   string          `json:"says"`
	Result json.RawMessage `json:"result"`
	Links  []Link          `json:"links"`
	DNS    vm.DNS          `json:"dns"`
	// Network is what the guest sees, in short: "name mac mtu addresses; destination>gateway …" a card.
	Cards []string `json:"cards,omitempty"`
	// Resolver is what the pod's DNS becomes, where the test has one.
	Resolver *vm.DNS `json:"resolver,omitempty"`
	// Error is a part of the error's text.
	Error string `json:"error,omitempty"`
}

// TestCards reads every golden file.
func TestCards(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cards/*.json")
	must(t, err)
	if len(files) < 10 {
		t.Fatalf("%d files", len(files))
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(f)
			must(t, err)
			var g golden
			must(t, json.Unmarshal(raw, &g))
			parsed, err := create.CreateFromBytes(g.Result)
			must(t, err)
			result, err := types100.NewResultFromResult(parsed)
			must(t, err)
			n := 0
			cs, err := cards(result, g.Links, func() string { n++; return fmt.Sprintf("02:00:00:00:00:%02d", n) })
			if g.Error != "" {
				if err == nil || !strings.Contains(err.Error(), g.Error) {
					t.Fatalf("%s: error %v, want one with %q", g.Says, err, g.Error)
				}
				return
			}
			must(t, err)
			var got []string
			for i, c := range cs {
				line := fmt.Sprintf("%s %s %d", c.Name, c.MAC, c.MTU)
				for _, a := range c.Addresses {
					line += " " + a.String()
				}
				line += ";"
				for _, r := range c.Routes {
					line += " " + r.Destination.String() + ">"
					if r.Gateway.IsValid() {
						line += r.Gateway.String()
					}
				}
				if c.PCI != "" {
					got = append(got, line+" pci "+c.PCI)
					if c.Tap+c.Bridge+c.LinkMAC != "" {
						t.Errorf("card %d, a function, has links %s, %s, %s", i, c.Tap, c.Bridge, c.LinkMAC)
					}
					continue
				}
				got = append(got, line)
				if c.Tap != fmt.Sprint("tap", i) || c.Bridge != fmt.Sprint("br", i) || c.LinkMAC == c.MAC {
					t.Errorf("card %d has links %s, %s, %s", i, c.Tap, c.Bridge, c.LinkMAC)
				}
			}
			if !reflect.DeepEqual(got, g.Cards) {
				t.Errorf("%s:\n got %q\nwant %q", g.Says, got, g.Cards)
			}
			if g.Resolver != nil {
				if d := resolver(g.DNS, result); text(t, d) != text(t, *g.Resolver) {
					t.Errorf("resolver %s", text(t, d))
				}
			}
		})
	}
}

// FuzzCards: no result ends the process, and what it makes holds its bounds: at most 16 cards, each a veth that is there, or a function.
func FuzzCards(f *testing.F) {
	files, err := filepath.Glob("testdata/cards/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(raw, &g); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(g.Result))
	}
	links := []Link{
		{Name: "eth0", Index: 2, Kind: "veth", MAC: "0a:58:0a:59:00:02", MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("10.89.0.2/24")}},
		{Name: "net1", Index: 3, Kind: "veth", MAC: "0a:58:0a:59:00:03", MTU: 1500},
		{Name: "tunl0", Index: 4, Kind: "ipip", MTU: 1480},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		parsed, err := create.CreateFromBytes(raw)
		if err != nil {
			return
		}
		result, err := types100.NewResultFromResult(parsed)
		if err != nil {
			return
		}
		cs, err := cards(result, links, newMAC)
		if err != nil {
			return
		}
		if len(cs) == 0 || len(cs) > maxCards {
			t.Errorf("%d cards", len(cs))
		}
		for _, c := range cs {
			if c.Name != "eth0" && c.Name != "net1" && (c.PCI == "" || !linkForm.MatchString(c.Name)) {
				t.Errorf("card %+v", c)
			}
			for _, r := range c.Routes {
				if !r.Destination.IsValid() {
					t.Errorf("card %+v", c)
				}
			}
		}
		_ = resolver(vm.DNS{}, result)
	})
}

// TestResolver: the kubelet's counts; CNI's is read as far as it can be.
func TestResolver(t *testing.T) {
	t.Parallel()
	result := &types100.Result{DNS: types.DNS{Nameservers: []string{"10.0.0.1", "no address", "fd00::1"}, Domain: "a.example", Search: []string{"b.example.", "a b"}, Options: []string{"ndots:2", "a\nb"}}}
	if got := fmt.Sprint(resolver(vm.DNS{}, result)); got != "{[10.0.0.1 fd00::1] [a.example b.example] [ndots:2]}" {
		t.Errorf("CNI's: %s", got)
	}
	asked := vm.DNS{Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	if got := resolver(asked, result); text(t, got) != text(t, asked) {
		t.Errorf("the kubelet's: %+v", got)
	}
}
