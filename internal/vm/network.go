package vm

import "net/netip"

// Network is a pod's network as its guest is to see it: what CNI plugins gave the pod, less what only the host needs. The network process
// makes it, its DHCP server and the guest's first-boot data tell it to the guest, and the CRI reports its first addresses.
type Network struct {
	// Interfaces are in the order of the guest's network cards. A pod has at least one.
	Interfaces []Interface `json:"interfaces"`
	// DNS is the pod's resolver as the kubelet asks for it; CNI's is used only where the kubelet gives none.
	DNS DNS `json:"dns"`
}

// Interface is one network card of a guest.
type Interface struct {
	// Name is the link's name in the pod's network namespace, for example "eth0". A guest may call it otherwise.
	Name string `json:"name"`
	// MAC is the card's address in lower case with colons: the one CNI gave, which the guest takes over from the pod's veth.
	MAC string `json:"mac"`
	// MTU is in bytes; 0 leaves it to the guest.
	MTU int `json:"mtu,omitempty"`
	// Addresses are of both families, with the length of their subnet. They may be absent: a card without an address is legal.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Routes lead through this card. A default route has the destination 0.0.0.0/0 or ::/0.
	Routes []Route `json:"routes,omitempty"`
	// PCI is the address of a virtual function that is passed through to the guest, for example "0000:3b:02.1". Empty: the card is a tap.
	PCI string `json:"pci,omitempty"`
}

// Route is one route of a guest.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// Gateway may be absent (the zero Addr): the destination is on the link.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// DNS is a resolver's configuration, as in resolv.conf.
type DNS struct {
	Servers []netip.Addr `json:"servers,omitempty"`
	// Search are the domains that short names are tried in, in order. The first is also the guest's own domain.
	Search []string `json:"search,omitempty"`
	// Options are resolv.conf's ("ndots:5"). DHCP cannot carry them; first-boot data can.
	Options []string `json:"options,omitempty"`
}
