package tenants

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deaf takes every write and shows one pod and nothing else.
type deaf struct {
	client.Client
	cancel func()
	left   int
}

func (d *deaf) wrote() error {
	if d.left--; d.left == 0 {
		d.cancel()
	}
	return nil
}

func (d *deaf) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if pods, ok := l.(*corev1.PodList); ok {
		pods.Items = []corev1.Pod{*named(&corev1.Pod{}, "eve", "p")}
	}
	return nil
}

func (d *deaf) Create(context.Context, client.Object, ...client.CreateOption) error { return d.wrote() }

func (d *deaf) Delete(context.Context, client.Object, ...client.DeleteOption) error { return d.wrote() }

func (d *deaf) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return d.wrote()
}

func (d *deaf) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return d.wrote()
}
func (d *deaf) Status() client.SubResourceWriter            { return deafSub{d} }
func (d *deaf) SubResource(string) client.SubResourceClient { return deafSub{d} }

// deafSub is deaf for subresources.
type deafSub struct{ d *deaf }

func (s deafSub) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.d.wrote()
}

func (s deafSub) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return nil
}

func (s deafSub) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return s.d.wrote()
}

func (s deafSub) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return s.d.wrote()
}

func (s deafSub) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.d.wrote()
}

// TestSeed: the same seed makes the same writes, another one others, and all kinds of writes come up.
func TestSeed(t *testing.T) {
	const most = 3000
	play := func(seed uint64) (out []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := &deaf{cancel: cancel, left: most}
		f := New(Options{
			Seed: seed, Tenants: []*Tenant{{Name: "eve", Namespace: "eve", Queues: []string{"a"}, Client: d}}, Read: d,
			Queues: []string{"a", "b"}, Honest: []string{"fair"}, Rate: 1e9, Auditor: NewAuditor(Audit{Tenants: map[string][]string{"eve": nil}}),
		})
		f.Run(ctx)
		for i := range f.log {
			r := &f.log[i]
			out = append(out, fmt.Sprint(r.turn, r.kind, r.object, r.detail))
		}
		return out
	}
	first, again, other := play(1), play(1), play(2)
	if n := min(len(first), len(again)); n < most/2 || !slices.Equal(first[:n], again[:n]) {
		t.Errorf("%d and %d writes with one seed, and they differ", len(first), len(again))
	}
	if slices.Equal(first[:100], other[:100]) {
		t.Error("another seed makes the same writes")
	}
	for _, k := range Keys() {
		if (k.Label|k.Annotation)&Pods != 0 && !slices.ContainsFunc(first, func(w string) bool { return strings.Contains(w, k.Text) }) {
			t.Errorf("no write of %d had %s", len(first), k.Text)
		}
	}
}
