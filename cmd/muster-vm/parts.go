package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/metrics"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/proxy"
	"github.com/muster-scheduler/muster/internal/vm/wrap"
)

// wrapped becomes QEMU.
func wrapped(ctx context.Context, argv []string) error {
	return wrap.Run(ctx, wrap.Shell{Fetch: fetch}, argv, os.Environ())
}

// fetch asks the network process for a pod's taps.
func fetch(ctx context.Context, k wrap.Key) ([]wrap.Card, []*os.File, error) {
	taps, files, err := network.Client{Socket: k.Socket}.Get(ctx, k.ID, k.Token)
	if err != nil {
		return nil, nil, err
	}
	cards := make([]wrap.Card, len(taps))
	for i, t := range taps {
		cards[i] = wrap.Card{Name: t.Name, MAC: t.MAC, MTU: t.MTU, Descriptor: t.Descriptor}
	}
	return cards, files, nil
}

func networkCommand() *cobra.Command {
	var o network.Config
	var logs app.LogOptions
	var admins, gets []uint
	var dns []string
	var diagSocket string
	c := &cobra.Command{
		Use: "net", Short: "Keep the pods' networks: namespaces, CNI, taps, DHCP, and the socket that hands out taps", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			if o.AdminUIDs, err = uids("--admin-uid", admins); err != nil {
				return err
			}
			if o.GetUIDs, err = uids("--qemu-uid", gets); err != nil {
				return err
			}
			for _, s := range dns {
				a, err := netip.ParseAddr(s)
				if err != nil || !a.Is4() {
					return fmt.Errorf("--fallback-dns %q: must be an IPv4 address", s)
				}
				o.FallbackDNS = append(o.FallbackDNS, a)
			}
			o.Ready = func() { fmt.Fprintln(c.OutOrStdout(), "ready", o.Socket) }
			o.Metrics = metrics.New("net")
			ctx, end := tell(c.Context(), diagSocket, o.Metrics, log)
			defer end()
			return network.Run(ctx, o, log)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Socket, "socket", "/run/muster-vm/net.sock", "path of the unix socket to serve")
	f.StringVar(&o.StateDir, "state-dir", "/var/lib/muster-vm/net", "folder of the database and of CNI's cache; it should outlive a boot")
	f.StringVar(&o.NetnsDir, "netns-dir", "/run/muster-vm/netns", "folder of the pods' network namespaces; it is this process's alone")
	f.StringSliceVar(&o.CNIBinDirs, "cni-bin-dir", []string{"/opt/cni/bin"}, "folders of CNI plugins")
	f.StringVar(&o.CNIConfDir, "cni-conf-dir", "/etc/cni/net.d", "folder of CNI's configuration")
	f.BoolVar(&o.NetworksAreOurs, "networks-are-ours", false, "no other runtime of the node adds pods to these networks: leftovers in CNI's plugins may be collected")
	f.UintSliceVar(&admins, "admin-uid", nil, "users that may call everything (default: the one that runs this process)")
	f.UintSliceVar(&gets, "qemu-uid", nil, "users that may take taps besides: the one that libvirt runs QEMU as")
	f.DurationVar(&o.Lease, "lease", 24*time.Hour, "how long DHCP gives an address for")
	f.StringSliceVar(&dns, "fallback-dns", nil, "resolvers that guests of pods without one of IPv4 are told")
	f.IntVar(&o.MaxPods, "max-pods", 1024, "how many pods there may be")
	f.DurationVar(&o.CNITimeout, "cni-timeout", time.Minute, "how long a CNI plugin may take")
	f.DurationVar(&o.Grace, "grace", 10*time.Second, "how long calls under way have when the process is told to end")
	f.StringVar(&diagSocket, "diag-socket", "", diagUsage)
	app.BindZapFlags(f, &logs)
	return c
}

func uids(flag string, in []uint) ([]uint32, error) {
	out := make([]uint32, len(in))
	for i, n := range in {
		if uint64(n) >= 1<<32-1 {
			return nil, fmt.Errorf("%s %d: must be a user id", flag, n)
		}
		out[i] = uint32(n)
	}
	return out, nil
}

func proxyCommand() *cobra.Command {
	var o proxy.Config
	var logs app.LogOptions
	var backends []string
	var diagSocket string
	c := &cobra.Command{
		Use: "proxy", Short: "One CRI endpoint for the kubelet over several runtimes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			for _, text := range backends {
				b, err := backend(text)
				if err != nil {
					return fmt.Errorf("--backend %q: %w", text, err)
				}
				o.Backends = append(o.Backends, b)
			}
			o.Ready = func() { fmt.Fprintln(c.OutOrStdout(), "ready", o.Listen) }
			o.Metrics = metrics.New("proxy")
			ctx, end := tell(c.Context(), diagSocket, o.Metrics, log)
			defer end()
			return proxy.Run(ctx, o, log)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Listen, "listen", "/run/muster-vm/proxy.sock", "path of the socket that the kubelet is given")
	f.StringVar(&o.Primary, "primary", "", "socket of the runtime that has every pod which names no other")
	f.StringArrayVar(&backends, "backend", nil, "another runtime, as name=NAME,socket=PATH[,handler=H]…[,prefix=P/]…; may be repeated, and they are asked in this order")
	f.StringVar(&o.State, "state", "", "file that outlives a restart with what backends have; without it, lists fail while a backend has been away since the start")
	f.DurationVar(&o.ListTimeout, "list-timeout", 3*time.Second, "how long a backend may hold up an answer that is made of several")
	f.DurationVar(&o.Grace, "grace", 5*time.Second, "how long calls under way have when the process is told to end")
	f.StringVar(&diagSocket, "diag-socket", "", diagUsage)
	app.BindZapFlags(f, &logs)
	return c
}

// backend reads what --backend says. The proxy judges the values.
func backend(text string) (proxy.Backend, error) {
	var b proxy.Backend
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return b, fmt.Errorf("%q: must be a key with =", part)
		case key == "name" && b.Name == "":
			b.Name = value
		case key == "socket" && b.Socket == "":
			b.Socket = value
		case key == "handler":
			b.Handlers = append(b.Handlers, value)
		case key == "prefix":
			b.ImagePrefixes = append(b.ImagePrefixes, value)
		default:
			return b, fmt.Errorf("%q: the keys are name and socket, once each, handler and prefix", key)
		}
	}
	if b.Name == "" || b.Socket == "" {
		return b, errors.New("needs name and socket")
	}
	return b, nil
}
