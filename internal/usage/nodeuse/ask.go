package nodeuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The bounds of an answer: its bytes, and its series.
const (
	maxBytes  = 16 << 20
	maxSeries = 20_000
)

// patience is how long all questions of one look may take together.
const patience = 10 * time.Second

// The questions. Each is answered by series with the labels instance, and node where whoever scrapes says it.
const (
	askCPU    = `100 * (1 - avg by (instance, node) (rate(node_cpu_seconds_total{mode="idle"}[10m])))`
	askMemory = `100 * (1 - max by (instance, node) (avg_over_time(node_memory_MemAvailable_bytes[10m])) / max by (instance, node) (node_memory_MemTotal_bytes))`
	askTime   = `max by (instance, node) (timestamp(node_memory_MemTotal_bytes))`
	askNames  = `max by (instance, nodename) (node_uname_info)`
)

// server asks one Prometheus server. It is not safe for concurrent use.
type server struct {
	api   v1.API
	close func()
}

// newServer returns the server at an address (a URL; a user and password in it are sent along). Nothing is asked of it yet.
func newServer(address string) (*server, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() // not the process's own, so that idle connections can be ended
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: bounded{transport}})
	if err != nil {
		return nil, errors.New("the address is no URL") // which may carry a password
	}
	return &server{v1.NewAPI(client), transport.CloseIdleConnections}, nil
}

// bounded cuts answers that are too long, so that they cannot be read.
type bounded struct{ under http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.under.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxBytes), resp.Body}
	}
	return resp, err
}

// look asks what of nodes is in use, by name. It takes no longer than patience.
func (s *server) look(ctx context.Context, now time.Time) (map[string]cluster.NodeUse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make([]model.Vector, 4)
	for i, question := range []string{askNames, askTime, askCPU, askMemory} {
		var err error
		if answers[i], err = s.ask(ctx, question, now); err != nil {
			return nil, fmt.Errorf("ask for %s: %w", question, err)
		}
	}
	out := read(answers[0], answers[1], answers[2], answers[3])
	if len(out) == 0 {
		return nil, errors.New("it knows CPU and memory of no machine: does it scrape node_exporter?")
	}
	return out, nil
}

func (s *server) ask(ctx context.Context, question string, at time.Time) (model.Vector, error) {
	value, _, err := s.api.Query(ctx, question, at)
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	switch {
	case !ok:
		return nil, fmt.Errorf("the answer is a %s, not a vector", value.Type())
	case len(vector) > maxSeries:
		return nil, fmt.Errorf("the answer has %d series; at most %d are read", len(vector), maxSeries)
	}
	return vector, nil
}

// machine is what tells machines apart.
type machine struct{ instance, node model.LabelValue }

func of(s *model.Sample) machine { return machine{s.Metric["instance"], s.Metric["node"]} }

// read puts answers together. A machine of which one of them says nothing is left out; of two of one name the one that was measured later counts, and of those the busier.
func read(names, times, cpu, memory model.Vector) map[string]cluster.NodeUse {
	called := map[model.LabelValue]string{}
	for _, s := range names {
		if name := string(s.Metric["nodename"]); name != "" {
			i := s.Metric["instance"]
			called[i] = max(called[i], name)
		}
	}
	at, cpus := map[machine]cluster.Instant{}, map[machine]int64{}
	for _, s := range times {
		if v := float64(s.Value); v > 0 && v < 1e11 {
			at[of(s)] = cluster.UnixNano(int64(v*1e3) * int64(time.Millisecond))
		}
	}
	for _, s := range cpu {
		if p, ok := percent(s.Value); ok {
			cpus[of(s)] = p
		}
	}
	out := map[string]cluster.NodeUse{}
	for _, s := range memory {
		m := of(s)
		when, timed := at[m]
		c, known := cpus[m]
		p, ok := percent(s.Value)
		if !timed || !known || !ok {
			continue
		}
		name := string(m.node)
		if name == "" {
			name = called[m.instance]
		}
		if name == "" {
			name = string(m.instance)
			if host, _, err := net.SplitHostPort(name); err == nil {
				name = host
			}
		}
		u := cluster.NodeUse{CPU: c, Memory: p, At: when}
		if was, twice := out[name]; twice {
			if was.At.After(u.At) {
				u = was
			} else if was.At.Equal(u.At) {
				u.CPU, u.Memory = max(u.CPU, was.CPU), max(u.Memory, was.Memory)
			}
		}
		out[name] = u
	}
	return out
}

// percent is a measurement in whole percents.
func percent(v model.SampleValue) (int64, bool) {
	x := float64(v)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, false
	}
	return int64(math.Round(min(max(x, 0), 100))), true
}
