package kai

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

const (
	// maxGangRecord is how long the encoded members of a record may be, in bytes: a ConfigMap may have 1 MiB.
	maxGangRecord = 900 << 10
	// maxGangRecordText is how much is read of what they decode to, in bytes: what a hundred thousand members take.
	maxGangRecordText = 32 << 20

	gangRecordPrefix = "gang-"
	gangRecordKey    = "decision"
	gangRecordFormat = "1"
)

// ErrTooLarge says that a decision has too many members for one record.
var ErrTooLarge = errors.New("the gang is too large for a record")

// GangRecord is the decision about a whole gang, none of whose members needs the binder, as one object (ADR 18).
type GangRecord struct {
	// Bundle is the decision's id, and the object is called after it.
	Bundle string
	// Gang is whose it is, GangUID that of its PodGroup, and Starts says whether it gives the gang its minimum.
	Gang    cluster.Key
	GangUID string
	Starts  bool
	Decided time.Time
	// Partition is the shard that decided.
	Partition Partition
	// Members are all that are to be bound, of the gang's namespace; none has shared devices or claims.
	Members []Intent
}

// gangRecordText is what is compressed.
type gangRecordText struct {
	Face    string             `json:"face"`
	Gang    string             `json:"gang"` // namespace/name
	UID     string             `json:"uid"`
	Starts  bool               `json:"starts,omitempty"`
	Decided time.Time          `json:"decided"`
	Members []gangRecordMember `json:"members"`
}

type gangRecordMember struct {
	Pod     string                       `json:"pod"`
	UID     types.UID                    `json:"uid"`
	Node    string                       `json:"node"`
	GPU     int64                        `json:"gpu,omitempty"`
	Zones   []v1alpha2.NUMAZonePlacement `json:"zones,omitempty"`
	Charged map[string]string            `json:"charged,omitempty"`
}

// GangRecordName is what the record of a bundle is called.
func GangRecordName(bundle string) string { return gangRecordPrefix + bundle }

// GangRecordsOf are the labels by which the records of a shard are found.
func GangRecordsOf(p Partition) map[string]string {
	return map[string]string{keys.GangRecordLabel: p.Pool()}
}

// ConfigMap returns the record as an object of that namespace; ErrTooLarge if one object does not hold it. It costs a compression.
func (r *GangRecord) ConfigMap(namespace string) (*v1.ConfigMap, error) {
	text := gangRecordText{Face: r.Gang.Face, Gang: r.Gang.String(), UID: r.GangUID, Starts: r.Starts, Decided: r.Decided.UTC(), Members: make([]gangRecordMember, len(r.Members))}
	for i := range r.Members {
		m := &r.Members[i]
		text.Members[i] = gangRecordMember{Pod: m.Pod, UID: m.PodUID, Node: m.Node, GPU: m.GPU, Zones: placements(m.Zones), Charged: WriteCharged(m.Charged)}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := json.NewEncoder(w).Encode(&text); err != nil {
		return nil, fmt.Errorf("encode the record of gang %s: %w", r.Gang, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the record of gang %s: %w", r.Gang, err)
	}
	if packed.Len() > maxGangRecord {
		return nil, fmt.Errorf("%w: %d members take %d bytes, %d are the most", ErrTooLarge, len(r.Members), packed.Len(), maxGangRecord)
	}
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: GangRecordName(r.Bundle), Labels: GangRecordsOf(r.Partition)},
		Data:       map[string]string{"format": gangRecordFormat, "gang": text.Gang},
		BinaryData: map[string][]byte{gangRecordKey: packed.Bytes()},
	}, nil
}

// ReadGangRecord is the inverse of ConfigMap. What it cannot read is an error that names the object and what is wrong with it.
func ReadGangRecord(cm *v1.ConfigMap, shard Partition) (*GangRecord, error) {
	wrong := func(format string, args ...any) (*GangRecord, error) {
		return nil, fmt.Errorf("ConfigMap %s/%s is no record of a gang: %w", cm.Namespace, cm.Name, fmt.Errorf(format, args...))
	}
	bundle, ok := strings.CutPrefix(cm.Name, gangRecordPrefix)
	switch {
	case !ok || bundle == "":
		return wrong("its name does not begin with %s", gangRecordPrefix)
	case cm.Data["format"] != gangRecordFormat:
		return wrong("format %q is not known, only %s", cm.Data["format"], gangRecordFormat)
	}
	packed, err := gzip.NewReader(bytes.NewReader(cm.BinaryData[gangRecordKey]))
	if err != nil {
		return wrong("binaryData.%s: %w", gangRecordKey, err)
	}
	var text gangRecordText
	if err := json.NewDecoder(io.LimitReader(packed, maxGangRecordText)).Decode(&text); err != nil {
		return wrong("binaryData.%s: %w", gangRecordKey, err)
	}
	namespace, name, _ := strings.Cut(text.Gang, "/")
	if namespace == "" || name == "" || len(text.Members) == 0 {
		return wrong("it names the gang %q and has %d members", text.Gang, len(text.Members))
	}
	r := &GangRecord{
		Bundle: bundle, Gang: cluster.Key{Face: text.Face, Namespace: namespace, Name: name}, GangUID: text.UID, Starts: text.Starts, Decided: text.Decided, Partition: shard,
		Members: make([]Intent, len(text.Members)),
	}
	for i := range text.Members {
		m := &text.Members[i]
		if m.Pod == "" || m.UID == "" || m.Node == "" {
			return wrong("member %d has no name, UID or node", i)
		}
		r.Members[i] = Intent{
			Namespace: namespace, Pod: m.Pod, PodUID: m.UID, Node: m.Node, GPU: m.GPU, Zones: zonesOf(m.Zones), Charged: ReadCharged(namespace, m.Charged),
			Bundle: bundle, Size: len(text.Members), Decided: text.Decided, Partition: shard,
		}
	}
	return r, nil
}
