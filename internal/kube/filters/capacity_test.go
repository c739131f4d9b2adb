package filters

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

func aDriver() *storagev1.CSIDriver {
	counts := true
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &counts}}
}

// aCapacity is of storage class "wait", for the nodes whose label key is value; most is the largest volume, "" for unsaid.
func aCapacity(name, key, value, size, most string) *storagev1.CSIStorageCapacity {
	q := quantity(size)
	c := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name}, StorageClassName: "wait", Capacity: &q,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}
	if most != "" {
		m := quantity(most)
		c.MaximumVolumeSize = &m
	}
	return c
}

// publish adds a driver that counts, and what it says of random parts of the cluster.
func publish(t *rapid.T, p *plant) []*storagev1.CSIStorageCapacity {
	p.add(aDriver())
	var out []*storagev1.CSIStorageCapacity
	for i := range rapid.IntRange(1, 4).Draw(t, "published") {
		key, value := zoneKey, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of zone")
		if rapid.Bool().Draw(t, "of a host") {
			key, value = hostKey, fmt.Sprintf("n%d", rapid.IntRange(0, 3).Draw(t, "host"))
		}
		size, most := rapid.IntRange(0, 6).Draw(t, "size"), ""
		if size > 1 && rapid.Bool().Draw(t, "bounded") {
			most = fmt.Sprintf("%dGi", size-1)
		}
		c := aCapacity(fmt.Sprintf("c%d", i), key, value, fmt.Sprintf("%dGi", size), most)
		out = append(out, c)
		p.add(c)
	}
	return out
}

// TestCapacityIsGivenOnce has members of a gang, claims of a pod, and two gangs ask for room that there is once.
func TestCapacityIsGivenOnce(t *testing.T) {
	t.Parallel()
	claims := func(p *plant, size string, n int) {
		for i := range n {
			p.add(aClaim(fmt.Sprintf("c%d", i), size))
		}
	}
	member := func(p *plant, gang string, i int, of ...string) {
		with := []func(*v1.Pod){ofGang(gang)}
		for _, c := range of {
			with = append(with, mountingOne(c))
		}
		p.add(aPod(fmt.Sprintf("%s-%d", gang, i), "x", "", with...))
	}
	gang := func(p *plant, name string, least int32) {
		p.gang(cluster.Key{Face: "kai", Namespace: "ns", Name: name}, least)
	}
	for name, c := range map[string]struct {
		given func(p *plant)
		want  map[string]int // pods by zone
		why   string         // of gang g
	}{
		"members of a gang": {
			given: func(p *plant) {
				claims(p, "4Gi", 3)
				gang(p, "g", 3)
				for i := range 3 {
					member(p, "g", i, fmt.Sprintf("c%d", i))
				}
			},
			why: "4 too little storage for a volume that is to be made",
		},
		"members that fit into two zones": {
			given: func(p *plant) {
				claims(p, "3Gi", 3)
				gang(p, "g", 3)
				for i := range 3 {
					member(p, "g", i, fmt.Sprintf("c%d", i))
				}
			},
			want: map[string]int{"a": 2, "b": 1},
		},
		"claims of one pod": {
			given: func(p *plant) {
				claims(p, "4Gi", 2)
				gang(p, "g", 1)
				member(p, "g", 0, "c0", "c1")
			},
			why: "4 too little storage for a volume that is to be made",
		},
		"one claim of two pods": {
			given: func(p *plant) {
				claims(p, "6Gi", 1)
				gang(p, "g", 2)
				member(p, "g", 0, "c0")
				member(p, "g", 1, "c0")
			},
			want: map[string]int{"a": 2},
		},
		"two gangs": {
			given: func(p *plant) {
				claims(p, "4Gi", 3)
				gang(p, "g", 2)
				member(p, "g", 0, "c0")
				member(p, "g", 1, "c1")
				gang(p, "later", 1)
				member(p, "later", 0, "c2")
			},
			want: map[string]int{"a": 1, "b": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(append(zones(), aStorageClass("wait", "disk.example.com", true), aDriver(),
				aCapacity("a", zoneKey, "a", "7Gi", "6Gi"), aCapacity("b", zoneKey, "b", "5Gi", ""))...)
			c.given(p)
			where, why := p.decide(t, Options{StorageCapacity: true})
			got := map[string]int{}
			for _, n := range where {
				got[n[:1]]++
			}
			if !maps.Equal(got, c.want) || why["g"] != c.why {
				t.Errorf("placed %v, want %v; the gang was told %q, want %q", where, c.want, why["g"], c.why)
			}
		})
	}
}

// TestCapacityHolds places pods wherever the filters let them, in any order and with some taken back, and then finds room
// for every volume that is to be made by trying every way.
func TestCapacityHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlant(aStorageClass("wait", "disk.example.com", true))
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			p.add(aNode(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone")))
		}
		published := publish(t, p)
		sizes := map[string]int64{}
		for i := range rapid.IntRange(1, 6).Draw(t, "claims") {
			c := aClaim(fmt.Sprintf("c%d", i), rapid.SampledFrom([]string{"1Gi", "2Gi", "3Gi"}).Draw(t, "size"))
			q := c.Spec.Resources.Requests[v1.ResourceStorage]
			sizes[c.Name] = q.Value()
			p.add(c)
		}
		names := slices.Sorted(maps.Keys(sizes))
		for i := range rapid.IntRange(1, 6).Draw(t, "pods") {
			o := aPod(fmt.Sprintf("p%d", i), "x", "", mountingOne(rapid.SampledFrom(names).Draw(t, "mounts")))
			if second := rapid.SampledFrom(names).Draw(t, "too"); second != o.Spec.Volumes[0].Name {
				mountingOne(second)(o)
			}
			p.add(o)
		}
		p.run(t, Options{StorageCapacity: true}, func(s *engine.Session, i *instance) {
			st := s.Ledger.Begin()
			at := map[string]*node{} // claims that a pod was placed for
			var marks []ledger.Mark
			var before []map[string]*node
			for _, o := range rapid.Permutation(p.pods).Draw(t, "order") {
				q := podNamed(s.Snap, o.Name)
				for _, id := range s.Snap.NodeOrder {
					n := s.Snap.Node(id)
					if !judge(i, q, n).Yes() {
						continue
					}
					marks, before = append(marks, st.Mark()), append(before, maps.Clone(at))
					st.Place(q, id)
					for _, c := range q.Class.Claims {
						if was := at[c]; was != nil && was.Name != n.Name {
							t.Fatalf("claim %s is to be made for %s and for %s", c, was.Name, n.Name)
						}
						at[c] = n
					}
					break
				}
				if len(marks) > 0 && rapid.IntRange(0, 4).Draw(t, "back") == 0 {
					k := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
					st.RollbackTo(marks[k])
					at, marks, before = before[k], marks[:k], before[:k]
				}
				if left := remaining(published); !roomForAll(slices.Sorted(maps.Keys(at)), at, sizes, published, left) {
					t.Fatalf("there is no room for %v", at)
				}
			}
			st.Discard()
		})
	})
}

func remaining(published []*storagev1.CSIStorageCapacity) []int64 {
	out := make([]int64, len(published))
	for i, c := range published {
		out[i] = c.Capacity.Value()
	}
	return out
}

// roomForAll tries every way to put the claims into what is left.
func roomForAll(claims []string, at map[string]*node, sizes map[string]int64, published []*storagev1.CSIStorageCapacity, left []int64) bool {
	if len(claims) == 0 {
		return true
	}
	size := sizes[claims[0]]
	for i, c := range published {
		s, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err != nil || !s.Matches(labels.Set(at[claims[0]].Labels)) || left[i] < size || c.MaximumVolumeSize != nil && c.MaximumVolumeSize.Value() < size {
			continue
		}
		left[i] -= size
		if roomForAll(claims[1:], at, sizes, published, left) {
			return true
		}
		left[i] += size
	}
	return false
}
