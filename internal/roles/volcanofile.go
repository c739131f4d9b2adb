package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
	"github.com/muster-scheduler/muster/internal/usage/nodeuse"
)

// Flags that say where Volcano's scheduler file is.
const (
	volcanoConfFlag = "volcano-scheduler-conf"
	volcanoMapFlag  = "volcano-scheduler-configmap"
)

// queueGatesFlag has queues of Volcano's let pods in.
const queueGatesFlag = "volcano-queue-gates"

// groupsMapFlag says where Volcano's resource groups are.
const groupsMapFlag = "volcano-admission-configmap"

// mapPatience is how long the scheduler waits, as it begins to lead, to be told what the ConfigMap says. Then it begins with Volcano's default file: gangs of others do not
// wait for it.
const mapPatience = 10 * time.Second

// Reasons of events of the ConfigMap.
const (
	eventFileRefused = "SchedulerFileRefused"
	eventFileTaken   = "SchedulerFileTaken"
)

// checkVolcano looks at the flags about Volcano's scheduler file and queues.
func (s *Settings) checkVolcano() error {
	if err := s.checkSharding(); err != nil {
		return err
	}
	switch {
	case s.QueueGates && len(s.VolcanoNames) == 0:
		return fmt.Errorf("--%s: there are no queues of Volcano's without --volcano-scheduler-name", queueGatesFlag)
	case s.VolcanoConf == "" && s.VolcanoMap == "":
		return nil
	case s.VolcanoConf != "" && s.VolcanoMap != "":
		return fmt.Errorf("--%s and --%s: there is one scheduler file; keep one of both", volcanoConfFlag, volcanoMapFlag)
	case len(s.VolcanoNames) == 0:
		return fmt.Errorf("--%s: there are no gangs of Volcano's without --volcano-scheduler-name", s.volcanoFlag())
	case s.VolcanoConf != "":
		return nil
	}
	if _, err := textfile.ParseRef(s.VolcanoMap); err != nil {
		return fmt.Errorf("--%s: %w", volcanoMapFlag, err)
	}
	return nil
}

// volcanoFlag is the flag that was given of the two.
func (s *Settings) volcanoFlag() string {
	if s.VolcanoConf != "" {
		return volcanoConfFlag
	}
	return volcanoMapFlag
}

// volcanoFile is the scheduler file to begin with: that at the path, or Volcano's default until the ConfigMap is read.
func (s *Settings) volcanoFile() (volcano.File, error) {
	text, name := []byte(volcano.Default), "Volcano's default"
	if s.VolcanoConf != "" {
		var err error
		if text, err = textfile.Read(s.VolcanoConf, mostOfFile); err != nil {
			return volcano.File{}, fmt.Errorf("--%s: %w", volcanoConfFlag, err)
		}
		name = s.VolcanoConf
	}
	file, err := volcano.Parse(text, builtin.Registry())
	if err != nil {
		return volcano.File{}, fmt.Errorf("--%s: %s: %w", s.volcanoFlag(), name, err)
	}
	return file, nil
}

// schedulerFile has the scheduler decide by Volcano's scheduler file as it stands. A text is taken whole or refused whole; the one that was taken last rules until another is.
// It is safe for concurrent use.
type schedulerFile struct {
	where    string // as the flag says it
	base     engine.Profile
	registry engine.Registry
	used     func(engine.Profile) // told by what is decided from the next cycle on, by who takes the engine
	tell     func(about client.Object, kind, reason, message string)
	refused  prometheus.Gauge
	measure  *nodeuse.Source // follows what the file says of metrics
	changed  chan struct{}

	mu      sync.Mutex
	text    string // that rules
	told    string // the last complaint, "" for none
	begun   bool
	settled bool
	next    *engine.Engine
}

// newSchedulerFile returns what follows the file, which begins with that of base.
func (p *process) newSchedulerFile(base engine.Profile, used func(engine.Profile), refused prometheus.Gauge) *schedulerFile {
	return &schedulerFile{
		where: p.VolcanoConf + p.VolcanoMap, base: base, registry: p.actions(), used: used, tell: p.events.recorder(p.SchedulerNames[0]), changed: make(chan struct{}, 1),
		settled: p.VolcanoMap == "",
		refused: refused,
	}
}

// followFile returns what follows Volcano's scheduler file, and what runs it while this process leads; nil where there is none. used are told by what is decided from the
// next cycle on.
func (p *process) followFile(base engine.Profile, used []func(engine.Profile), guard *aside.Guard) (*schedulerFile, func(context.Context) error, error) {
	refused := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "muster", Name: "scheduler_file_refused", Help: "1 while Volcano's scheduler file as it stands is refused, or is not there, and the one before it rules.",
	})
	if err := p.registry.Register(refused); err != nil {
		return nil, nil, fmt.Errorf("register metrics: %w", err)
	}
	if p.VolcanoConf+p.VolcanoMap == "" {
		return nil, nil, nil
	}
	f := p.newSchedulerFile(base, func(now engine.Profile) {
		for _, tell := range used {
			tell(now)
		}
	}, refused)
	f.measure = nodeuse.New(func(look func() error) error { return guard.Catch("the use of nodes", "all nodes", look) })
	var ref textfile.Ref
	var objects cache.Cache
	var err error
	if p.VolcanoMap != "" {
		if ref, err = textfile.ParseRef(p.VolcanoMap); err != nil {
			return nil, nil, err
		}
		if objects, err = p.newCache(ref.Cache()); err != nil {
			return nil, nil, err
		}
	}
	return f, func(ctx context.Context) error { return f.run(ctx, ref, objects, guard) }, nil
}

// Settled implements scheduler.Engines.
func (f *schedulerFile) Settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled
}

// Changed implements scheduler.Engines.
func (f *schedulerFile) Changed() <-chan struct{} { return f.changed }

// Take implements scheduler.Engines.
func (f *schedulerFile) Take() *engine.Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.next
	if f.next = nil; e != nil {
		f.used(e.Profile())
	}
	return e
}

// found takes in what there is of the file.
func (f *schedulerFile) found(log logr.Logger, t textfile.Found) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.wake()
	why := t.Why
	if why == "" {
		if f.begun && string(t.Text) == f.text {
			f.refused.Set(0)
			f.told = ""
			return
		}
		err := f.take(log, t.Text)
		if err == nil {
			f.refused.Set(0)
			if f.told = ""; t.About != nil {
				f.tell(t.About, corev1.EventTypeNormal, eventFileTaken, "the scheduler decides by this file from now on")
			}
			return
		}
		why = err.Error()
	}
	f.refused.Set(1)
	if why == f.told {
		return
	}
	f.told = why
	log.Error(errors.New(why), "Volcano's scheduler file is refused, and the one before it rules", "file", f.where)
	if t.About != nil {
		f.tell(t.About, corev1.EventTypeWarning, eventFileRefused, "the file is refused, and the one before it rules: "+why)
	}
}

// take has a text rule.
func (f *schedulerFile) take(log logr.Logger, text []byte) error {
	file, err := volcano.Parse(text, f.registry)
	if err != nil {
		return err
	}
	p := f.base
	p.Faces = append(slices.DeleteFunc(slices.Clone(p.Faces), func(of engine.Face) bool { return of.Name == file.Face.Name }), file.Face)
	e, err := engine.New(p, f.registry)
	if err != nil {
		return err
	}
	f.begun, f.text, f.next = true, string(text), e
	ask := nodeuse.Config{}
	if file.Metrics != nil {
		ask = nodeuse.Config{Address: file.Metrics.Address, Interval: file.Metrics.Interval}
	}
	f.measure.Follow(ask)
	log.Info("Volcano's scheduler file rules", "file", f.where, "actions", file.Face.Actions)
	for _, told := range file.Told {
		log.Info("Volcano's scheduler file was understood in part", "file", f.where, "problem", told.Error())
	}
	return nil
}

// wake lets the scheduler begin, and look.
func (f *schedulerFile) wake() {
	f.settled = true
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run follows the file until ctx ends. objects sees the ConfigMap, and is nil where the file is at a path.
func (f *schedulerFile) run(ctx context.Context, ref textfile.Ref, objects cache.Cache, guard *aside.Guard) error {
	log := logr.FromContextOrDiscard(ctx)
	found := func(t textfile.Found) {
		err := guard.Catch("Volcano's scheduler file", f.where, func() error {
			f.found(log, t)
			return nil
		})
		if err != nil {
			log.Error(err, "Volcano's scheduler file could not be read: a defect", "file", f.where)
		}
	}
	if objects == nil {
		return textfile.File(ctx, f.where, mostOfFile, found)
	}
	late := time.AfterFunc(mapPatience, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.settled {
			log.Info("the API server does not say what the ConfigMap of Volcano's scheduler file says; Volcano's default file rules until it does", "configmap", f.where)
			f.refused.Set(1)
			f.wake()
		}
	})
	defer late.Stop()
	var g app.Group
	g.Add("scheduler-file-cache", untilAsked(objects.Start))
	g.Add("scheduler-file-watch", func(ctx context.Context) error { return textfile.ConfigMap(ctx, objects, ref, found) })
	return g.Run(ctx)
}
