package kaizip

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Source is what an archive tells of.
type Source struct {
	// Reader lists the objects. Lists of kinds that the cluster does not serve are empty.
	Reader client.Reader
	// Without says which kinds not to ask for, because nobody watches them; by name, such as "CSIStorageCapacity".
	Without []string
	Profile engine.Profile
	Params  Params
	// Now is the moment; it becomes the time of the file in the archive.
	Now time.Time
}

// Write writes an archive as KAI's scheduler serves it. Objects are as the scheduler keeps them: without what it does not read.
func Write(ctx context.Context, w io.Writer, s *Source) error {
	a, err := s.archive(ctx)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	f, err := z.CreateHeader(&zip.FileHeader{Name: entryName, Method: zip.Deflate, Modified: s.Now.UTC()})
	if err == nil {
		err = json.NewEncoder(f).Encode(a)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return fmt.Errorf("write an archive: %w", err)
	}
	return nil
}

// archive gathers what is to be written.
func (s *Source) archive(ctx context.Context) (*archive, error) {
	actions := strings.Join(s.Profile.Actions, ", ")
	a := &archive{Params: s.Params, Config: config{QueueDepthPerAction: s.Profile.Settings.QueueDepth}}
	if len(s.Profile.Actions) > 0 {
		a.Config.Actions = &actions
	}
	for _, uses := range s.Profile.Tiers {
		t := tier{Plugins: []plugin{}}
		for _, u := range uses {
			t.Plugins = append(t.Plugins, plugin{Name: u.Name, Arguments: u.Arguments})
		}
		a.Config.Tiers = append(a.Config.Tiers, t)
	}
	var failed error
	a.Raw.each(func(k dialect.Kind, list reflect.Value) {
		if failed == nil {
			failed = s.fill(ctx, k, list)
		}
	})
	return a, failed
}

// fill lists the objects of one kind.
func (s *Source) fill(ctx context.Context, k dialect.Kind, into reflect.Value) error {
	into.Set(reflect.MakeSlice(into.Type(), 0, 0)) // KAI's readers want lists, not null
	if slices.Contains(s.Without, k.String()) {
		return nil
	}
	found := k.WatchedList()
	if err := s.Reader.List(ctx, found, client.UnsafeDisableDeepCopy); meta.IsNoMatchError(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("list %s: %w", k, err)
	}
	return meta.EachListItem(found, func(o runtime.Object) error {
		into.Set(reflect.Append(into, reflect.ValueOf(o)))
		return nil
	})
}
