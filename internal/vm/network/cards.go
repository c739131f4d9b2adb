package network

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Card is a network card of a guest, and the links of the pod's namespace that make it.
type Card struct {
	vm.Interface
	// LinkMAC is the address that the veth has while the guest has the one that CNI gave to it.
	LinkMAC string `json:"linkMAC"`
	// Tap and Bridge are links of the pod's namespace. A virtual function has none.
	Tap    string `json:"tap,omitempty"`
	Bridge string `json:"bridge,omitempty"`
	// Driver is what a virtual function had when it came: "vfio-pci", where it was made for guests and has no link.
	Driver string `json:"driver,omitempty"`
}

// Link is a link of the pod's namespace as CNI plugins left it.
type Link struct {
	Name string `json:"name"`
	// Index is the kernel's.
	Index int `json:"index"`
	// Kind is rtnetlink's word, for example "veth"; "device" where it has none.
	Kind string `json:"kind"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
	// Addresses are those of global scope, IPv6 link-local ones left out.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Routes are those of the main table that the kernel did not make by itself.
	Routes []vm.Route `json:"routes,omitempty"`
	// PCI is the address of the device behind the link. Empty: it is none of the PCI bus.
	PCI string `json:"pci,omitempty"`
}

// Bounds of a CNI result. QEMU's machine has 32 slots.
const (
	maxCards  = 16
	maxIPs    = 64
	maxRoutes = 256
)

// linkForm is what the name of a function may be that only the result names: of links the kernel bounds them.
var linkForm = regexp.MustCompile(`^[a-zA-Z0-9_.@-]{1,15}$`)

// cards reads a CNI result against the links that are really there, and says which cards the guest gets: a pure function. newMAC gives the
// addresses that veths take instead of theirs.
//
// Results cannot be taken as they are. Those of old versions (0.2.0) and of some plugins (Weave) name no interface, others name routes that
// they did not make or make routes that they do not name, and a plugin that calls others (Multus) reports only the first network. So:
// an address of the result belongs to the link that has it, else to the one that the result names, else to the only veth. A veth with no
// address in the result is a card too, with the addresses that it has. Routes are those of the kernel, which are what a container would
// use; the result's, where there are none.
//
// A link that is a device of the PCI bus becomes a card that is passed through, and so does an interface of the result that has a PCI address (pciID) and no link, because
// its driver is that of guests already. Whether such a device is a virtual function is for the caller to see.
//
// This needs no special case for Calico, whose link has an address without a subnet (/32), an on-link route to 169.254.1.1, and a default
// route through it: the guest gets the same, an on-link route by option 121 with the gateway 0.0.0.0 (RFC 3442), which is how clouds with
// /32 addresses tell their guests. The node's veth answers ARP for 169.254.1.1 as for a container.
func cards(result *types100.Result, links []Link, newMAC func() string) ([]Card, error) {
	if result == nil {
		return nil, fmt.Errorf("CNI's result: there is none")
	}
	if len(result.IPs) == 0 {
		return nil, fmt.Errorf("CNI's result has no IP address")
	}
	if len(result.IPs) > maxIPs || len(result.Routes) > maxRoutes || len(result.Interfaces) > maxIPs || len(links) > maxIPs {
		return nil, fmt.Errorf("CNI's result has %d addresses, %d routes and %d interfaces, the namespace %d links; at most %d, %d, %d and %d are allowed",
			len(result.IPs), len(result.Routes), len(result.Interfaces), len(links), maxIPs, maxRoutes, maxIPs, maxIPs)
	}
	links = withFunctions(links, result)
	byName := map[string]int{}
	veths := []int{}
	for i, l := range links {
		byName[l.Name] = i
		if l.Kind == "veth" {
			veths = append(veths, i)
		}
	}
	var order []int // of links, in the order of cards
	given := map[int][]netip.Prefix{}
	use := func(i int) {
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	for n, ip := range result.IPs {
		if ip == nil {
			return nil, fmt.Errorf("CNI's result: ips[%d] is null", n)
		}
		p, ok := prefix(ip.Address)
		if !ok {
			return nil, fmt.Errorf("CNI's result: ips[%d]: %q is no address with the length of its subnet", n, ip.Address.String())
		}
		i := linkOf(p, ip, result, links, byName, veths)
		if i < 0 {
			return nil, fmt.Errorf("CNI's result: ips[%d]: no link of the pod has %s", n, p)
		}
		use(i)
		if !slices.Contains(given[i], p) {
			given[i] = append(given[i], p)
		}
	}
	for _, f := range result.Interfaces {
		if f == nil || f.Sandbox == "" {
			continue
		}
		if i, ok := byName[f.Name]; ok {
			use(i)
		}
	}
	rest := slices.Clone(veths)
	for i, l := range links {
		if l.PCI != "" {
			rest = append(rest, i)
		}
	}
	slices.SortFunc(rest, func(a, b int) int { return cmp.Compare(links[a].Index, links[b].Index) })
	for _, i := range rest {
		use(i)
	}
	if len(order) > maxCards {
		return nil, fmt.Errorf("CNI made %d interfaces; a guest has at most %d cards", len(order), maxCards)
	}
	out := make([]Card, 0, len(order))
	kernelRoutes := false
	for n, i := range order {
		l := links[i]
		if l.PCI == "" && l.Kind != "veth" {
			return nil, vm.Errorf(vm.Invalid, "interface %s is of the kind %s: only veths and virtual functions (SR-IOV) can be joined to a guest", l.Name, l.Kind)
		}
		if l.PCI != "" && (!linkForm.MatchString(l.Name) || l.MTU < 0 || l.MTU > maxMTU) {
			return nil, fmt.Errorf("interface %q: must have 1 to 15 letters, digits, '_', '.', '@' and '-', and an MTU, %d, of 0 to %d", short(l.Name), l.MTU, maxMTU)
		}
		mac, err := net.ParseMAC(l.MAC)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("interface %s: %q is no Ethernet address", l.Name, l.MAC)
		}
		addresses := given[i]
		if addresses == nil {
			addresses = slices.Clone(l.Addresses)
		}
		routes := slices.Clone(l.Routes)
		kernelRoutes = kernelRoutes || len(routes) > 0
		c := Card{Interface: vm.Interface{Name: l.Name, MAC: mac.String(), MTU: l.MTU, Addresses: addresses, Routes: routes, PCI: l.PCI}}
		if l.PCI != "" {
			out = append(out, c)
			continue
		}
		c.LinkMAC = newMAC()
		c.Tap, c.Bridge = "tap"+strconv.Itoa(n), "br"+strconv.Itoa(n)
		if _, there := byName[c.Tap]; there {
			return nil, fmt.Errorf("CNI made a link %s, a name that the guest's tap needs", c.Tap)
		}
		if _, there := byName[c.Bridge]; there {
			return nil, fmt.Errorf("CNI made a link %s, a name that the guest's bridge needs", c.Bridge)
		}
		out = append(out, c)
	}
	if !kernelRoutes {
		resultRoutes(out, result)
	}
	for i := range out {
		sortRoutes(out[i].Routes)
	}
	return out, nil
}

// withFunctions adds to the links what the result says of functions that have none.
func withFunctions(links []Link, result *types100.Result) []Link {
	out := slices.Clone(links)
	for _, f := range result.Interfaces {
		if f == nil || f.Sandbox == "" || f.PciID == "" || slices.ContainsFunc(out, func(l Link) bool { return l.PCI == f.PciID || l.Name == f.Name }) {
			continue
		}
		out = append(out, Link{Name: f.Name, Index: math.MaxInt, Kind: "function", MAC: f.Mac, MTU: f.Mtu, PCI: f.PciID})
	}
	return out
}

// linkOf finds the link of an address, or −1.
func linkOf(p netip.Prefix, ip *types100.IPConfig, result *types100.Result, links []Link, byName map[string]int, veths []int) int {
	for i, l := range links {
		if slices.ContainsFunc(l.Addresses, func(a netip.Prefix) bool { return a.Addr() == p.Addr() }) {
			return i
		}
	}
	if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(result.Interfaces) {
		if f := result.Interfaces[*ip.Interface]; f != nil && f.Sandbox != "" {
			if i, ok := byName[f.Name]; ok {
				return i
			}
		}
	}
	if len(veths) == 1 {
		return veths[0]
	}
	return -1
}

// resultRoutes gives the routes of a result to the cards whose subnet their gateway is in, else to the first. A route without a gateway
// goes through the one of an address of its family, as CNI's specification has it.
func resultRoutes(out []Card, result *types100.Result) {
	for _, r := range result.Routes {
		if r == nil {
			continue
		}
		dst, ok := prefix(r.Dst)
		if !ok {
			continue
		}
		gw, _ := netip.AddrFromSlice(r.GW)
		gw = gw.Unmap()
		if !gw.IsValid() {
			for _, ip := range result.IPs {
				if a, ok := netip.AddrFromSlice(ip.Gateway); ok && a.Unmap().Is4() == dst.Addr().Is4() {
					gw = a.Unmap()
					break
				}
			}
		}
		if gw.IsValid() && gw.Is4() != dst.Addr().Is4() {
			continue
		}
		to := 0
		for i := range out {
			if slices.ContainsFunc(out[i].Addresses, func(p netip.Prefix) bool { return gw.IsValid() && p.Masked().Contains(gw) }) {
				to = i
				break
			}
		}
		route := vm.Route{Destination: dst.Masked(), Gateway: gw}
		if !slices.Contains(out[to].Routes, route) {
			out[to].Routes = append(out[to].Routes, route)
		}
	}
}

// sortRoutes puts on-link routes first, which gateways may need, then the more specific ones: the order in which they can be made.
func sortRoutes(routes []vm.Route) {
	slices.SortStableFunc(routes, func(a, b vm.Route) int {
		if a.Gateway.IsValid() != b.Gateway.IsValid() {
			if a.Gateway.IsValid() {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.Destination.Bits(), a.Destination.Bits())
	})
}

// prefix turns net's form of an address with a mask into netip's.
func prefix(n net.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	ones, bits := n.Mask.Size()
	if bits == 128 && a.Is4In6() && ones >= 96 && len(n.Mask) == 16 {
		ones, bits = ones-96, 32
	}
	a = a.Unmap()
	if bits != a.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, ones), true
}

// resolver is the pod's DNS: the kubelet's, else the result's, as far as it can be read.
func resolver(asked vm.DNS, result *types100.Result) vm.DNS {
	if len(asked.Servers) > 0 || len(asked.Search) > 0 {
		return asked
	}
	out := vm.DNS{Options: asked.Options}
	for _, s := range result.DNS.Nameservers {
		if a, err := netip.ParseAddr(s); err == nil && len(out.Servers) < maxServers {
			out.Servers = append(out.Servers, a)
		}
	}
	search := result.DNS.Search
	if d := result.DNS.Domain; d != "" && !slices.Contains(search, d) {
		search = append([]string{d}, search...)
	}
	for _, s := range search {
		if domainForm.MatchString(s) && len(s) <= 254 && len(out.Search) < maxSearch {
			out.Search = append(out.Search, strings.TrimSuffix(s, "."))
		}
	}
	if len(out.Options) == 0 {
		for _, o := range result.DNS.Options {
			if optionForm.MatchString(o) && len(out.Options) < maxOptions {
				out.Options = append(out.Options, o)
			}
		}
	}
	return out
}

// network is what the guest is to see.
func network(cs []Card, dns vm.DNS) vm.Network {
	n := vm.Network{DNS: dns}
	for _, c := range cs {
		n.Interfaces = append(n.Interfaces, c.Interface)
	}
	return n
}
