package textfile

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Every is the time between two looks at a file. A text counts once two looks have found it, so that none counts that is half written.
const Every = 500 * time.Millisecond

// Found is what was found.
type Found struct {
	Text []byte
	// Why says why there is no text; "" if there is one.
	Why string
	// About is the ConfigMap that it is in; nil for none.
	About client.Object
}

// same says whether two found the same.
func (f *Found) same(o *Found) bool { return f.Why == o.Why && string(f.Text) == string(o.Text) }

// Read reads a file, of which it takes most bytes and one more, by which its reader knows that it is longer.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

// File follows the file at a path until ctx ends. told is called for what is there first, and for each change.
func File(ctx context.Context, path string, most int64, told func(Found)) error {
	look := func() Found {
		text, err := Read(path, most)
		if err != nil {
			return Found{Why: err.Error()}
		}
		return Found{Text: text}
	}
	last := look()
	told(last)
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for seen := last; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		before := seen
		if seen = look(); seen.same(&before) && !seen.same(&last) {
			last = seen
			told(last)
		}
	}
}

// Ref names a text of a ConfigMap.
type Ref struct {
	types.NamespacedName
	// Key is that of the ConfigMap's data; "": the only one that there is.
	Key string
}

// ParseRef reads NAMESPACE/NAME or NAMESPACE/NAME:KEY.
func ParseRef(text string) (Ref, error) {
	name, key, keyed := strings.Cut(text, ":")
	namespace, name, ok := strings.Cut(name, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 || keyed && len(validation.IsConfigMapKey(key)) > 0 {
		return Ref{}, fmt.Errorf("%.100q is not of the form NAMESPACE/NAME or NAMESPACE/NAME:KEY", text)
	}
	return Ref{types.NamespacedName{Namespace: namespace, Name: name}, key}, nil
}

// Cache is what a cache has to be told that sees no ConfigMap but this one. It takes the rights to list and watch it, by its name.
func (r Ref) Cache() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
		Namespaces: map[string]cache.Config{r.Namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name),
	}}}
}

// in returns the text of a ConfigMap.
func (r Ref) in(m *corev1.ConfigMap) Found {
	key := r.Key
	if key == "" {
		if len(m.Data) != 1 {
			return Found{About: m, Why: fmt.Sprintf("ConfigMap %s has %d keys; of one that has not one the key must be named", r.NamespacedName, len(m.Data))}
		}
		for key = range m.Data { // order: there is one
		}
	}
	text, ok := m.Data[key]
	if !ok {
		return Found{About: m, Why: fmt.Sprintf("ConfigMap %s has no key %q; it has %.200q", r.NamespacedName, key, slices.Sorted(maps.Keys(m.Data)))}
	}
	return Found{About: m, Text: []byte(text)}
}

// ConfigMap follows a text of a ConfigMap until ctx ends. objects is a cache of [Ref.Cache]'s, which somebody else runs. told is called, by one goroutine at a time, for what
// is there first, and for each change.
func ConfigMap(ctx context.Context, objects cache.Cache, r Ref, told func(Found)) error {
	informer, err := objects.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", r.NamespacedName, err)
	}
	found := make(chan Found)
	send := func(f Found) {
		select {
		case found <- f:
		case <-ctx.Done():
		}
	}
	tell := func(object any) {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Namespace == r.Namespace && m.Name == r.Name {
			send(r.in(m))
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if m, ok := object.(*corev1.ConfigMap); ok && m.Namespace == r.Namespace && m.Name == r.Name {
				send(Found{Why: fmt.Sprintf("ConfigMap %s is gone", r.NamespacedName)})
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", r.NamespacedName, err)
	}
	defer informer.RemoveEventHandler(handler) //nolint:errcheck // the cache ends with its process
	var last *Found
	sync := time.NewTicker(100 * time.Millisecond) // until it is known whether there is one
	defer sync.Stop()
	for {
		select {
		case f := <-found:
			if last == nil || !f.same(last) {
				last = &f
				told(f)
			}
		case <-sync.C:
			if !handler.HasSynced() {
				continue
			}
			if sync.Stop(); last == nil {
				last = &Found{Why: fmt.Sprintf("there is no ConfigMap %s", r.NamespacedName)}
				told(*last)
			}
		case <-ctx.Done():
			return nil
		}
	}
}
