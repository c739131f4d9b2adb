package kai

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// recordOf is the decision about a gang of that many members, with names and UIDs as a cluster has them.
func recordOf(members int) *GangRecord {
	shard := Partition{Key: DefaultNodePoolKey, Value: "gold"}
	r := &GangRecord{Bundle: "0123456789abcdef0123", Gang: GangKey("a", "pg-train-"+string(uuid.NewUUID())), GangUID: "g", Starts: true, Decided: time.Unix(1000, 5).UTC(), Partition: shard}
	for i := range members {
		r.Members = append(r.Members, Intent{
			Namespace: "a", Pod: fmt.Sprintf("train-worker-%d-x7kq%d", i, i%7), PodUID: uuid.NewUUID(), Node: fmt.Sprintf("gpu-node-%d.example.internal", i/8), GPU: 1000,
			Charged: cluster.Charged{Queue: "research", Gang: r.Gang, Set: "workers", Fixed: true},
			Bundle:  r.Bundle, Size: members, Decided: r.Decided, Partition: shard,
		})
	}
	return r
}

// TestGangRecord: a decision is read as it was written, with all that a Binding takes, and one object holds 5,000 members.
func TestGangRecord(t *testing.T) {
	t.Parallel()
	small := recordOf(3)
	small.Members[0].Zones = []cluster.ZoneShare{{Zone: "node-0", Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}}}}
	small.Members[1].Charged = cluster.Charged{}
	for _, want := range []*GangRecord{small, recordOf(5000)} {
		cm, err := want.ConfigMap("home")
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadGangRecord(cm, want.Partition)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if cm.Namespace != "home" || cm.Name != "gang-0123456789abcdef0123" || cm.Labels["muster.dev/gang-record"] != "gold" {
			t.Errorf("it is %s/%s, labelled %v", cm.Namespace, cm.Name, cm.Labels)
		}
		t.Logf("%d members: %d bytes", len(want.Members), len(cm.BinaryData["decision"]))
	}
	if _, err := recordOf(40_000).ConfigMap("home"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("40,000 members: %v", err)
	}
}

// TestGangRecordUnread: what is no record is an error that says which object it is, and what is wrong.
func TestGangRecordUnread(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.ConfigMap){
		"its name does not begin with gang-": func(cm *v1.ConfigMap) { cm.Name = "settings" },
		`format "2" is not known`:            func(cm *v1.ConfigMap) { cm.Data["format"] = "2" },
		`format "" is not known`:             func(cm *v1.ConfigMap) { cm.Data = nil },
		"binaryData.decision: EOF":           func(cm *v1.ConfigMap) { cm.BinaryData = nil },
		"binaryData.decision: gzip":          func(cm *v1.ConfigMap) { cm.BinaryData["decision"] = []byte("not compressed at all") },
		"binaryData.decision: unexpected EOF": func(cm *v1.ConfigMap) {
			cm.BinaryData["decision"] = cm.BinaryData["decision"][:40]
		},
	} {
		cm, err := recordOf(3).ConfigMap("home")
		if err != nil {
			t.Fatal(err)
		}
		change(cm)
		if _, err := ReadGangRecord(cm, Partition{}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "home/"+cm.Name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*GangRecord){
		`names the gang "" and has 3 members`: func(r *GangRecord) { r.Gang = cluster.Key{} },
		"has 0 members":                       func(r *GangRecord) { r.Members = nil },
		"member 1 has no name, UID or node":   func(r *GangRecord) { r.Members[1].PodUID = types.UID("") },
	} {
		r := recordOf(3)
		change(r)
		cm, err := r.ConfigMap("home")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadGangRecord(cm, Partition{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
