package roles

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// listen opens the process's ports.
func (p *process) listen() error {
	type place struct{ flag, address string }
	places := []place{{p.listenFlag(), p.Listen}}
	switch {
	case p.ProbeListen == p.Listen:
	case p.probesGiveWay():
		p.log.Info("probes are answered where metrics are: at their port the scheduler tells its decisions", "address", p.ProbeListen)
	default:
		flag := probeFlag
		if slices.Contains(p.names, VolcanoControllers) {
			flag = volcanoProbeFlag
		}
		places = append(places, place{flag, p.ProbeListen})
	}
	for i, at := range places {
		l, err := app.Listen(at.flag, at.address)
		if err != nil {
			return err
		}
		if l != nil {
			// With port 0 this is the only place that says which one it became.
			p.log.Info("serving", "address", l.Addr().String())
			p.group.AddEarly(fmt.Sprintf("http-%d", i), func(ctx context.Context) error { return p.server.Run(ctx, l) })
		}
	}
	if err := p.tell(); err != nil {
		return err
	}
	if err := p.listenCycles(); err != nil {
		return err
	}
	if err := p.listenUI(); err != nil {
		return err
	}
	if p.Profiler {
		l, err := app.ListenLocal("profiler-port", p.ProfilerPort)
		if err != nil {
			return err
		}
		p.log.V(1).Info("profiling", "address", l.Addr().String())
		profiler := &app.Server{Profiling: true, Local: true}
		p.group.AddEarly("profiler", func(ctx context.Context) error { return profiler.Run(ctx, l) })
	}
	return nil
}

// identified has every answer say which cluster the scheduler is of, once it knows: whoever asks at a port of this machine may mean another.
func (p *process) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if snap := p.recorder.Latest(); snap != nil {
			if id := replay.Cluster(snap); id != "" {
				w.Header().Set(replay.ClusterHeader, id)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// listenFlag is the flag that says where the process serves metrics.
func (p *process) listenFlag() string {
	switch {
	case slices.Contains(p.names, Scheduler), slices.Contains(p.names, VolcanoControllers):
		return "listen-address"
	case slices.Contains(p.names, Queue):
		return "metrics-listen-address"
	}
	return "metrics-bind-address"
}

// probesGiveWay says whether one process has both of KAI's programs whose ports are the same by default, the scheduler's that tells
// decisions and the others' for probes, and was told nothing else. It then answers probes beside its metrics, where the scheduler does.
func (p *process) probesGiveWay() bool {
	return slices.Contains(p.names, Scheduler) && p.ProbeListen == probeAddress && p.PluginPort == pluginPort && p.Listen != "" && p.Listen != "0"
}

// tell serves what the scheduler remembers of its decisions, to this machine only: there is no authentication. That
// another process has the port is an error only if somebody asked for it: it is no reason not to schedule.
func (p *process) tell() error {
	if p.PluginPort == 0 || !slices.Contains(p.names, Scheduler) {
		return nil
	}
	l, err := app.ListenLocal("plugin-server-port", p.PluginPort)
	if err != nil {
		if p.PluginPort != pluginPort {
			return err
		}
		p.log.Info("decisions and snapshots of this scheduler are not served: who asks at this port is answered by another process", "error", err.Error())
		return nil
	}
	p.log.V(1).Info("telling decisions", "address", l.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /decisions", p.records)
	mux.Handle("GET /snapshot", p.recorder)
	mux.Handle("GET /store", p.inspector)
	prof := p.recorder.Profile()
	if prof.Uses("snapshot") {
		mux.HandleFunc("GET /get-snapshot", p.archive)
	}
	if prof.Uses("reflectjoborder") {
		mux.Handle("GET /get-job-order", scheduler.ServeJobOrder(p.recorder.Latest, prof, p.actions()))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "plugin not found", http.StatusNotFound) })
	teller := &http.Server{Handler: app.Local(p.identified(mux)), ReadHeaderTimeout: 10 * time.Second}
	p.group.AddEarly("decisions", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { teller.Close() })
		defer stop()
		if err := teller.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}
