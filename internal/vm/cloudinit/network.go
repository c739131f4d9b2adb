package cloudinit

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/muster-scheduler/muster/internal/vm"
)

// The types below are cloud-init's network configuration, version 1. It has no word for a route without a gateway: such a route is the
// subnet's own, or left out.

type netConfig struct {
	Version int         `yaml:"version"`
	Config  []netDevice `yaml:"config"`
}

type netDevice struct {
	Type    string      `yaml:"type"`
	Name    string      `yaml:"name,omitempty"`
	MAC     string      `yaml:"mac_address,omitempty"`
	MTU     int         `yaml:"mtu,omitempty"`
	Subnets []netSubnet `yaml:"subnets,omitempty"`
	Address []string    `yaml:"address,omitempty"`
	Search  []string    `yaml:"search,omitempty"`
}

type netSubnet struct {
	Type    string     `yaml:"type"`
	Address string     `yaml:"address,omitempty"`
	Netmask string     `yaml:"netmask,omitempty"`
	Routes  []netRoute `yaml:"routes,omitempty"`
}

type netRoute struct {
	Network string `yaml:"network" json:"network"`
	Netmask string `yaml:"netmask,omitempty" json:"netmask,omitempty"`
	Gateway string `yaml:"gateway" json:"gateway"`
}

func networkConfig(n vm.Network) netConfig {
	out := netConfig{Version: 1}
	routes := placeRoutes(n)
	for i, card := range n.Interfaces {
		d := netDevice{Type: "physical", Name: card.Name, MAC: card.MAC, MTU: card.MTU}
		for j, a := range card.Addresses {
			s := netSubnet{Type: "static", Address: a.Addr().String(), Netmask: mask(a)}
			if a.Addr().Is6() {
				s = netSubnet{Type: "static6", Address: a.String()}
			}
			for _, r := range routes[spot{i, j}] {
				route := netRoute{Network: r.Destination.Addr().String(), Netmask: mask(r.Destination), Gateway: r.Gateway.String()}
				if r.Destination.Addr().Is6() {
					route.Network, route.Netmask = r.Destination.String(), ""
				}
				s.Routes = append(s.Routes, route)
			}
			d.Subnets = append(d.Subnets, s)
		}
		if len(card.Addresses) == 0 {
			d.Subnets = []netSubnet{{Type: "dhcp"}}
		}
		out.Config = append(out.Config, d)
	}
	if len(n.DNS.Servers)+len(n.DNS.Search) > 0 {
		d := netDevice{Type: "nameserver", Search: n.DNS.Search}
		for _, server := range n.DNS.Servers {
			d.Address = append(d.Address, server.String())
		}
		out.Config = append(out.Config, d)
	}
	return out
}

// The types below are OpenStack's network_data.json. It has no word for search domains: the guest gets them by DHCP, or not.

type osNetwork struct {
	Links    []osLink    `json:"links"`
	Networks []osSubnet  `json:"networks"`
	Services []osService `json:"services"`
}

type osLink struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
	MAC  string `json:"ethernet_mac_address"`
	MTU  int    `json:"mtu,omitempty"`
}

type osSubnet struct {
	ID        string     `json:"id"`
	NetworkID string     `json:"network_id"`
	Type      string     `json:"type"`
	Link      string     `json:"link"`
	Address   string     `json:"ip_address,omitempty"`
	Netmask   string     `json:"netmask,omitempty"`
	Routes    []netRoute `json:"routes,omitempty"`
}

type osService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

func networkData(n vm.Network) osNetwork {
	out := osNetwork{Links: []osLink{}, Networks: []osSubnet{}, Services: []osService{}}
	routes := placeRoutes(n)
	for i, card := range n.Interfaces {
		out.Links = append(out.Links, osLink{ID: card.Name, Name: card.Name, Type: "phy", MAC: card.MAC, MTU: card.MTU})
		add := func(s osSubnet) {
			s.ID = fmt.Sprintf("net-%d", len(out.Networks))
			s.NetworkID, s.Link = s.ID, card.Name
			out.Networks = append(out.Networks, s)
		}
		for j, a := range card.Addresses {
			s := osSubnet{Type: "ipv4", Address: a.Addr().String(), Netmask: mask(a)}
			if a.Addr().Is6() {
				s = osSubnet{Type: "ipv6", Address: a.String()}
			}
			for _, r := range routes[spot{i, j}] {
				s.Routes = append(s.Routes, netRoute{Network: r.Destination.Addr().String(), Netmask: mask(r.Destination), Gateway: r.Gateway.String()})
			}
			add(s)
		}
		if len(card.Addresses) == 0 {
			add(osSubnet{Type: "ipv4_dhcp"})
		}
	}
	for _, server := range n.DNS.Servers {
		out.Services = append(out.Services, osService{Type: "dns", Address: server.String()})
	}
	return out
}

// spot is an address of a card.
type spot struct{ card, address int }

// placeRoutes gives each route to the first address of its card and family whose subnet has the gateway, or else to the first of that
// family. Of the default routes of a family only the first stays: guests differ in what they make of two. A route without a gateway is
// left out.
func placeRoutes(n vm.Network) map[spot][]vm.Route {
	out := map[spot][]vm.Route{}
	hasDefault := map[bool]bool{}
	for i, card := range n.Interfaces {
		for _, r := range card.Routes {
			if !r.Gateway.IsValid() || !r.Destination.IsValid() {
				continue
			}
			six := r.Destination.Addr().Is6()
			at := -1
			for j, a := range card.Addresses {
				if a.Addr().Is6() != six {
					continue
				}
				if a.Masked().Contains(r.Gateway) {
					at = j
					break
				}
				if at < 0 {
					at = j
				}
			}
			if at < 0 || r.Destination.Bits() == 0 && hasDefault[six] {
				continue
			}
			if r.Destination.Bits() == 0 {
				hasDefault[six] = true
			}
			r.Destination = r.Destination.Masked()
			out[spot{i, at}] = append(out[spot{i, at}], r)
		}
	}
	return out
}

// mask is a prefix's netmask, in the notation of its addresses.
func mask(p netip.Prefix) string {
	return net.IP(net.CIDRMask(p.Bits(), p.Addr().BitLen())).String()
}
