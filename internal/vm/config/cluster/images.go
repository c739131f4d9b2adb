package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/muster-scheduler/muster/internal/vm"
)

// ImageMappings is the resource of VirtletImageMapping objects.
func ImageMappings() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "virtlet.k8s", Version: "v1", Resource: "virtletimagemappings"}
}

// imagesTimeout bounds what a pull waits for the cluster.
const imagesTimeout = 5 * time.Second

// ImageMapping is a VirtletImageMapping object.
type ImageMapping struct {
	Name string
	// Spec is in JSON, as the object has it: nobody has judged it.
	Spec []byte
}

// Images asks a cluster for the VirtletImageMapping objects of kube-system, each time it is asked itself: images are pulled seldom, so that a list is
// less than a watch that always runs, and an object counts from the next pull on. The last answer is kept in memory alone, because specs may hold passwords
// and keys. Methods may be called at the same time.
type Images struct {
	From dynamic.Interface

	mu   sync.Mutex
	last []ImageMapping
	seen bool
}

// List gives the objects in ascending order of their names. Without their definition there are none. Where the cluster does not answer within five seconds,
// it gives the last answer, and the reason as stale; without an earlier answer the error is of kind Unavailable. More than 1000 objects or
// 16 MiB of specs are Invalid.
func (i *Images) List(ctx context.Context) (objects []ImageMapping, stale, err error) {
	objects, err = i.ask(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err == nil:
		i.last, i.seen = objects, true
		return slices.Clone(objects), nil, nil
	case i.seen && vm.KindOf(err) == vm.Unavailable:
		return slices.Clone(i.last), err, nil
	}
	return nil, nil, err
}

func (i *Images) ask(ctx context.Context) (out []ImageMapping, err error) {
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	size := 0
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := i.From.Resource(ImageMappings()).Namespace(Namespace).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, vm.Errorf(vm.Unavailable, "VirtletImageMapping objects: %w", err)
		}
		for k := range list.Items {
			name := list.Items[k].GetName()
			spec := []byte("{}")
			if given := list.Items[k].Object["spec"]; given != nil {
				if spec, err = json.Marshal(given); err != nil {
					return nil, fmt.Errorf("VirtletImageMapping %s: %w", name, err)
				}
			}
			out = append(out, ImageMapping{Name: name, Spec: spec})
			if size += len(spec); size > maxKept || len(out) > maxObjects {
				return nil, vm.Errorf(vm.Invalid, "VirtletImageMapping objects: at most %d, of %d bytes together, are taken, and %s has more", maxObjects, maxKept, Namespace)
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			slices.SortFunc(out, func(a, b ImageMapping) int { return strings.Compare(a.Name, b.Name) })
			return out, nil
		}
	}
}
