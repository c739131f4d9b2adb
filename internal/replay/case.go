package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Case is a decision and what it depended on.
type Case struct {
	// Version is of the program that made the case: another version may decide otherwise.
	Version string
	Profile engine.Profile
	// StorageCapacity is the scheduler's --schedule-csi-storage.
	StorageCapacity bool
	Image           cluster.Image
	// Decided says that the decision is on record. Plans are what was decided then; nothing, when nothing was to be done.
	Decided bool
	Plans   []engine.Plan
}

// ClusterHeader is the header of a scheduler's answers that says which cluster it is of; see Cluster.
const ClusterHeader = "Muster-Cluster"

// Cluster says which cluster a snapshot is of, by the UID of its namespace kube-system; "" for none that a scheduler has seen.
func Cluster(snap *cluster.Snapshot) string {
	if n, ok := snap.Object(cluster.Namespaces, metav1.NamespaceSystem).(*v1.Namespace); ok {
		return string(n.UID)
	}
	return ""
}

// Outcome is what a replay comes to.
type Outcome struct {
	Plans  []engine.Plan
	Result engine.Result
	// Same says whether the plans are those of the case, byte for byte; false where none are on record.
	Same bool
}

// Run decides on the case again. An engine that panics on it is an error that carries the stack: to reproduce that may be what
// the case is for.
func (c *Case) Run(ctx context.Context, r engine.Registry) (out Outcome, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("the engine panics on this snapshot: %v\n%s", what, debug.Stack())
		}
	}()
	e, err := engine.New(c.Profile, r)
	if err != nil {
		return out, err
	}
	out.Result = e.Run(ctx, c.Image.Store(cluster.Options{}).Snapshot(c.Image.Now), func(p engine.Plan) { out.Plans = append(out.Plans, p) })
	if out.Result.Trace.Truncated {
		return out, fmt.Errorf("the replay was cut short: %w", context.Cause(ctx))
	}
	if c.Decided {
		then, err := Bytes(c.Plans)
		if err != nil {
			return out, err
		}
		now, err := Bytes(out.Plans)
		if err != nil {
			return out, err
		}
		out.Same = bytes.Equal(then, now)
	}
	return out, nil
}

// Bytes is the one text of plans that are compared byte for byte.
func Bytes(plans []engine.Plan) ([]byte, error) {
	if plans == nil {
		plans = []engine.Plan{}
	}
	text, err := json.Marshal(plans)
	if err != nil {
		return nil, fmt.Errorf("print plans: %w", err)
	}
	return text, nil
}
