package roles

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/replay"
)

// cycleFlag is the flag that says where the scheduler serves its cycles.
const cycleFlag = "cycle-listen-address"

// servesCycles says whether the scheduler's cycles are served.
func (p *process) servesCycles() bool { return p.CycleListen != "" && p.CycleListen != "0" }

// newCycles makes the server of the scheduler's cycles, and returns what is told of each, and by what those are decided that come.
func (p *process) newCycles(prof engine.Profile) (decided func(*cluster.Snapshot, []engine.Plan), use func(engine.Profile), err error) {
	stream := replay.NewStream(p.version, prof, p.CSIStorage)
	server, err := cycles.NewServer(stream, &review.Reviewer{Client: p.client})
	if err != nil {
		return nil, nil, err
	}
	p.cycles = server
	if p.Explain {
		server.Told = p.forecasts.take
	}
	return func(snap *cluster.Snapshot, plans []engine.Plan) {
		p.recorder.Decided(snap, plans)
		stream.Decided(snap, plans)
	}, stream.Use, nil
}

// listenCycles opens the port at which cycles are served, and has the scheduler's Lease say where that is.
func (p *process) listenCycles() error {
	if p.cycles == nil {
		return nil
	}
	l, err := app.Listen(cycleFlag, p.CycleListen)
	if err != nil {
		return err
	}
	place := cycles.Place{URL: "https://" + p.reached(l.Addr()), Fingerprint: p.cycles.Fingerprint()}
	if p.found != nil {
		maps.Copy(p.found, place.Notes())
	}
	p.log.Info("serving cycles", "address", l.Addr().String(), "url", place.URL, "certificate", place.Fingerprint)
	p.group.AddEarly("cycles", func(ctx context.Context) error { return p.cycles.Run(ctx, l) })
	return nil
}

// reached is how others reach a listener of this process: at the address that it listens on, or, if that is every one, at the one from which this
// machine reaches the API server. Nothing is sent to find that out.
func (p *process) reached(at net.Addr) string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return at.String()
	}
	u, err := url.Parse(p.config.Host)
	if err != nil {
		return at.String()
	}
	c, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		p.log.Info("no address of this machine is known at which others reach it", "error", fmt.Sprint(err))
		return at.String()
	}
	defer c.Close()
	own, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return at.String()
	}
	return net.JoinHostPort(own, port)
}
