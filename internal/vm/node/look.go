package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/vm/diag"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// gcEvery is how often files of images that nobody needs are looked for. What pods leave is the server's, which looks as often.
const gcEvery = time.Minute

// machinery is what collects garbage: a runtime.Server.
type machinery interface {
	Collect(ctx context.Context, dry bool) ([]runtime.Garbage, error)
	Recorded() ([]*runtime.Sandbox, []*runtime.Container)
}

// files collects files of images: an image.Store.
type files interface {
	GC(dry bool) ([]image.Garbage, error)
}

// look is what a runtime process tells of itself.
func look(server machinery, images files, counts prometheus.Gatherer) diag.Service {
	return diag.Service{
		Metrics: counts,
		Sources: []diag.Source{diag.Stack(), {Name: "metadata", List: func(context.Context) ([]diag.Source, error) { return metadata(server), nil }}},
		GC: func(ctx context.Context, dry bool) ([]diag.Garbage, error) {
			found, err := server.Collect(ctx, dry)
			out := []diag.Garbage{}
			for _, g := range found {
				one := diag.Garbage{Kind: string(g.Verb), ID: g.ID, Why: g.Why}
				if g.Err != nil {
					one.Error = g.Err.Error()
				}
				out = append(out, one)
			}
			rests, bad := images.GC(dry)
			for _, g := range rests {
				out = append(out, diag.Garbage{Kind: "remove image file", ID: g.Path, Why: g.Why, Bytes: g.Bytes})
			}
			return out, errors.Join(err, bad)
		},
	}
}

// metadata has a text for each record.
func metadata(server machinery) []diag.Source {
	boxes, containers := server.Recorded()
	one := func(id string, record any) diag.Source {
		return diag.Source{Name: id, Ext: "json", Read: func(_ context.Context, to io.Writer) error {
			e := json.NewEncoder(to)
			e.SetIndent("", "  ")
			return e.Encode(record)
		}}
	}
	var ofBoxes, ofContainers []diag.Source
	for _, b := range boxes {
		ofBoxes = append(ofBoxes, one(b.ID, b))
	}
	for _, c := range containers {
		ofContainers = append(ofContainers, one(c.ID, c))
	}
	folder := func(name string, in []diag.Source) diag.Source {
		return diag.Source{Name: name, List: func(context.Context) ([]diag.Source, error) { return in, nil }}
	}
	return []diag.Source{folder("sandboxes", ofBoxes), folder("containers", ofContainers)}
}

// sweepImages removes what is left of pulls and images, now and every so often, until ctx ends.
func sweepImages(ctx context.Context, images files, every time.Duration, log logr.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		gone, err := images.GC(false)
		for _, g := range gone {
			log.Info("nobody's", "verb", "remove image file", "id", g.Path, "why", g.Why, "bytes", g.Bytes)
		}
		if err != nil {
			log.Error(err, "files of images could not be collected; it is tried again")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
