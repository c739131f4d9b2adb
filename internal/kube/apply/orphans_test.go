package apply

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestIncomplete tells bundles that a writer left half written from all others.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	var all []v1alpha2.BindRequest
	add := func(namespace, bundle string, size, written int, change func(*v1alpha2.BindRequest)) {
		for i := range written {
			br := v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", bundle, i), Labels: map[string]string{}}}
			if bundle != "" {
				br.Labels[keys.BundleLabel], br.Labels[keys.BundleSizeLabel] = bundle, strconv.Itoa(size)
			}
			if change != nil {
				change(&br)
			}
			all = append(all, br)
		}
	}
	add("a", "half", 4, 2, nil)
	add("a", "whole", 3, 3, nil)
	add("b", "half", 4, 4, nil) // another namespace's bundle of that name
	add("b", "too-many", 1, 2, nil)
	add("a", "", 0, 1, nil) // another client's request
	add("a", "begun", 3, 2, func(br *v1alpha2.BindRequest) { br.Status.Phase = v1alpha2.BindRequestSucceeded })
	add("a", "no-size", 3, 1, func(br *v1alpha2.BindRequest) { br.Labels[keys.BundleSizeLabel] = "many" })
	add("a", "other-shard", 3, 1, func(br *v1alpha2.BindRequest) { br.Labels[keys.NodePoolLabel] = "blue" })
	var have []string
	for name, requests := range incomplete(all, kai.Partition{Key: keys.NodePoolLabel}) { // order: sorted below
		have = append(have, fmt.Sprintf("%s/%s %d", name.namespace, name.id, len(requests)))
	}
	slices.Sort(have)
	if d := cmp.Diff([]string{"a/half 2"}, have); d != "" {
		t.Error(d)
	}
}
