package kaizip

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// maxEntries is how many files an archive may hold; KAI's holds one.
const maxEntries = 64

// Is says whether a file begins as archives do.
func Is(r io.ReaderAt) bool {
	var magic [4]byte
	_, err := r.ReadAt(magic[:], 0)
	return err == nil && bytes.Equal(magic[:], []byte("PK\x03\x04"))
}

// Read makes a case of an archive of so many bytes, and returns what the archive cannot tell and what was not understood.
func Read(r io.ReaderAt, size int64, l replay.Limits) (*replay.Case, []string, error) {
	a, modified, err := open(r, size, l)
	if err != nil {
		return nil, nil, err
	}
	c := &replay.Case{StorageCapacity: a.Params.ScheduleCSIStorage}
	conf, err := json.Marshal(a.Config)
	if err != nil {
		return nil, nil, fmt.Errorf("read an archive: config: %w", err)
	}
	if c.Profile, err = profile.Parse(conf); err != nil {
		return nil, nil, fmt.Errorf("read an archive: config: %w", err)
	}
	p := &a.Params
	s := &c.Profile.Settings
	s.ConsolidationVictims, s.MovedAreFree, s.StaleGrace = p.MaxNumberConsolidationPreemptees, p.AllowConsolidatingReclaim, p.GlobalDefaultStalenessGracePeriod
	o := feed.Options{
		SchedulerNames: []string{p.SchedulerName}, Partition: kai.Partition{Key: p.PartitionParams.NodePoolLabelKey, Value: p.PartitionParams.NodePoolLabelValue},
		RestrictNodes: p.RestrictSchedulingNodes, GPUWorkerLabel: keys.GPUWorkerNodeLabel, CPUWorkerLabel: keys.CPUWorkerNodeLabel,
		FlatQueues: !p.FullHierarchyFairness, StorageCapacity: p.ScheduleCSIStorage, QueueLabel: p.QueueLabelKey, Zones: c.Profile.Uses(numa.Name),
	}
	store := cluster.NewStore(cluster.Options{StuckAfter: max(0, p.StuckInReleasingThreshold)})
	if err := feed.Rebuild(context.Background(), &a.Raw, o, store); err != nil {
		return nil, nil, fmt.Errorf("read an archive: %w", err)
	}
	now := a.Raw.latest()
	if modified.After(now) {
		now = modified
	}
	c.Image = store.Snapshot(cluster.InstantOf(now)).Image()
	notes := []string{"KAI's archives tell no moment, no history of usage, no namespaces, disruption budgets or CSI nodes: this is decided without; the moment is the latest time that an object tells"}
	return c, notes, nil
}

// open unpacks an archive and returns it with the time it was packed, zero if it does not say.
func open(r io.ReaderAt, size int64, l replay.Limits) (*archive, time.Time, error) {
	if size > l.Packed {
		return nil, time.Time{}, fmt.Errorf("read an archive: %w: %d bytes", replay.ErrTooLarge, l.Packed)
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read an archive: %w", err)
	}
	if len(z.File) > maxEntries {
		return nil, time.Time{}, fmt.Errorf("read an archive: it has %d files; at most %d are looked at", len(z.File), maxEntries)
	}
	for _, f := range z.File {
		if f.Name != entryName {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("read an archive: %w", err)
		}
		defer in.Close()
		text, err := io.ReadAll(io.LimitReader(in, l.Unpacked+1))
		switch {
		case int64(len(text)) > l.Unpacked:
			return nil, time.Time{}, fmt.Errorf("read an archive: %s: %w: %d bytes", entryName, replay.ErrTooLarge, l.Unpacked)
		case err != nil:
			return nil, time.Time{}, fmt.Errorf("read an archive: %w", err)
		}
		a := &archive{Params: DefaultParams()}
		if err := json.Unmarshal(text, a); err != nil {
			return nil, time.Time{}, fmt.Errorf("read an archive: %s: %w", entryName, err)
		}
		if err := a.Raw.check(); err != nil {
			return nil, time.Time{}, fmt.Errorf("read an archive: %s: %w", entryName, err)
		}
		modified := f.Modified
		if modified.Year() < 2000 {
			modified = time.Time{}
		}
		return a, modified, nil
	}
	return nil, time.Time{}, errors.New("read an archive: it has no " + entryName + ": it is no snapshot of KAI's")
}

// check refuses lists with nothing at a place.
func (o *objects) check() (err error) {
	o.each(func(k dialect.Kind, list reflect.Value) {
		for i, object := range items(list) {
			if err == nil && reflect.ValueOf(object).IsNil() {
				err = fmt.Errorf("rawObjects: the %s at place %d is null", k, i)
			}
		}
	})
	return err
}

// latest is the latest time that an object tells.
func (o *objects) latest() time.Time {
	var at time.Time
	see := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	o.each(func(_ dialect.Kind, list reflect.Value) {
		for _, object := range items(list) {
			see(object.GetCreationTimestamp().Time)
		}
	})
	for _, n := range o.Nodes {
		for i := range n.Status.Conditions {
			see(n.Status.Conditions[i].LastHeartbeatTime.Time)
			see(n.Status.Conditions[i].LastTransitionTime.Time)
		}
	}
	for _, p := range o.Pods {
		for i := range p.Status.Conditions {
			see(p.Status.Conditions[i].LastTransitionTime.Time)
		}
		if p.Status.StartTime != nil {
			see(p.Status.StartTime.Time)
		}
	}
	for _, g := range o.PodGroups {
		for i := range g.Status.SchedulingConditions {
			see(g.Status.SchedulingConditions[i].LastTransitionTime.Time)
		}
	}
	return at
}

// Get is here for the interface: nobody asks for one object.
func (o *objects) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("an archive only lists")
}

// List lists what the archive has of the kind of into; nothing of kinds that it does not know.
func (o *objects) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	var found []runtime.Object
	o.each(func(k dialect.Kind, list reflect.Value) {
		if reflect.TypeOf(k.WatchedList()) == reflect.TypeOf(into) {
			for _, object := range items(list) {
				found = append(found, object)
			}
		}
	})
	if len(found) == 0 {
		return nil
	}
	return meta.SetList(into, found)
}
