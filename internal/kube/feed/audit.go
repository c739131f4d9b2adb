package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
)

// Rebuild fills an empty store from lists, without watching: what an audit compares with, and what a command that needs
// one look at the cluster works on. It costs a LIST of every kind. Each kind is listed at a moment of its own.
func Rebuild(ctx context.Context, reader client.Reader, o Options, store *cluster.Store) error {
	in := newInbox()
	for k := range dialect.Kinds {
		if !o.wanted(k) {
			continue
		}
		list := k.WatchedList()
		if err := reader.List(ctx, list); k.Row().Optional && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
			continue // not served: there are none
		} else if err != nil {
			return fmt.Errorf("list %T: %w", k.Watched(), err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("list %T: item of type %T", k.Watched(), item)
			}
			in.put(k, client.ObjectKeyFromObject(object), object, true)
			return nil
		})
		if err != nil {
			return err
		}
	}
	boxes, again, _ := in.take()
	newTranslator(o).work(&boxes, again, store)
	return nil
}

// Compare says where two snapshots differ in what was observed, one line per object, sorted: "pod a/p (uid): only in the
// first", or both states. Pods that the scheduler has decided about but nobody confirmed, and the ledgers of their
// nodes, are left out, and so is what only the passing of time makes of a pod; usage and what is carried for filters are, too. Snapshots
// of equal content compare equal whatever Store they come from. It costs a state per object.
func Compare(first, second *cluster.Snapshot) []string {
	assumed := map[string]bool{} // pods by UID, and nodes by "node "+name
	for _, s := range [2]*cluster.Snapshot{first, second} {
		s.EachPod(func(p *cluster.Pod) {
			if p.Assumed() || p.Evicting() {
				assumed[p.UID], assumed["node "+p.NodeName] = true, true
			}
		})
	}
	a, b := picture(first, assumed), picture(second, assumed)
	same := equality.Semantic.Copy()
	if err := same.AddFunc(cluster.Instant.Equal); err != nil {
		panic(err) // it is a function of two Instants
	}
	var out []string
	for name, x := range a { // order: sorted below
		switch y, ok := b[name]; {
		case !ok:
			out = append(out, name+": only in the first")
		case !same.DeepEqual(x, y):
			out = append(out, name+": "+text(x)+" in the first, "+text(y)+" in the second")
		}
	}
	for name := range b { // order: sorted below
		if _, ok := a[name]; !ok {
			out = append(out, name+": only in the second")
		}
	}
	slices.Sort(out)
	return out
}

// picture says what a snapshot means, in states with amounts by name, because IDs and dimension indices are each Store's own.
func picture(s *cluster.Snapshot, assumed map[string]bool) map[string][]any {
	out := map[string][]any{}
	for _, e := range s.Image().Events {
		switch st := e.(type) {
		case cluster.NodeState:
			n := s.NodeByName(st.Name)
			st.Allocatable = nil
			state := []any{st, named(s.Dims, n.Allocatable)}
			if !assumed["node "+n.Name] {
				state = append(state, named(s.Dims, n.Used), named(s.Dims, n.Foreign))
			}
			out["node "+n.Name] = state
		case cluster.TopologyState:
			out["topology "+st.Name] = []any{st}
		case cluster.QueueState:
			q := s.QueueByName(st.Name)
			st.Quota, st.Limit, st.Weight = nil, nil, nil
			out["queue "+q.Name] = []any{st, named(s.Dims, q.Quota), limits(s.Dims, q.Limit), named(s.Dims, q.Weight)}
		case cluster.GangState: // remnants follow from the pods, and from what a store knows by itself of pods without a record
			out["gang "+st.Key.String()] = []any{st}
		case cluster.PodState:
			if assumed[st.UID] {
				continue
			}
			if st.Phase == cluster.StuckReleasing {
				st.Phase = cluster.Releasing
			}
			st.Spec.Requests, st.Spec.Charge = nil, nil // said by Requests, in names
			for _, qs := range [][]cluster.Quantity{st.Requests, st.Charge} {
				slices.SortFunc(qs, func(x, y cluster.Quantity) int { return strings.Compare(x.Name, y.Name) })
			}
			out["pod "+st.Namespace+"/"+st.Name+" ("+st.UID+")"] = []any{st}
		}
	}
	return out
}

// named returns the non-zero dimensions of r by name.
func named(d cluster.Dims, r cluster.Resources) map[string]int64 {
	out := map[string]int64{}
	for i, x := range r {
		if x != 0 {
			out[d.Name(i)] = x
		}
	}
	return out
}

// limits returns the dimensions of r that are bounded.
func limits(d cluster.Dims, r cluster.Resources) map[string]int64 {
	out := map[string]int64{}
	for i, x := range r {
		if x != cluster.Unlimited {
			out[d.Name(i)] = x
		}
	}
	return out
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // the model's states marshal by construction
		panic("feed: picture: " + err.Error())
	}
	return string(b)
}
