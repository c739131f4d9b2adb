package kai

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// ReadCharged returns the record that the annotations of an object of the namespace are; the zero value for none, and for a
// text that is none. The names of queues and PodGroups have no slash; what follows the second is the subgroup, whatever it is. The gang is of
// its queue's face, unless its name says another: the record is one for all faces.
func ReadCharged(namespace string, annotations map[string]string) cluster.Charged {
	queue, rest, ok := strings.Cut(annotations[keys.ChargedAnnotation], "/")
	group, set, _ := strings.Cut(rest, "/")
	if !ok || queue == "" || group == "" {
		return cluster.Charged{}
	}
	c := cluster.Charged{Queue: queue, Gang: cluster.GroupKey(namespace, group, queue), Set: set}
	for word := range strings.SplitSeq(annotations[keys.ChargedAsAnnotation], ",") {
		if text, ok := strings.CutPrefix(word, keys.ChargedShare); ok {
			c.Share = readShare(text)
		}
		c.Fixed = c.Fixed || word == keys.ChargedFixed
	}
	return c
}

// readShare is the inverse of shareText; the zero Share for a text that is none.
func readShare(text string) cluster.Share {
	n, of, _ := strings.Cut(text, "x")
	devices, err := strconv.ParseInt(n, 10, 32)
	if err != nil {
		return cluster.Share{}
	}
	annotations := map[string]string{keys.GPUFractionDevicesAnnotation: strconv.FormatInt(devices, 10), FractionAnnotation: of}
	if mib, byMemory := strings.CutSuffix(of, "Mi"); byMemory {
		delete(annotations, FractionAnnotation)
		annotations[MemoryAnnotation] = mib
	}
	share, wrong := asked(annotations)
	if wrong != "" {
		return cluster.Share{}
	}
	return share
}

func shareText(s cluster.Share) string {
	if s.Portion == 0 {
		return fmt.Sprintf("%s%dx%dMi", keys.ChargedShare, s.Devices, s.MemoryMiB)
	}
	return fmt.Sprintf("%s%dx%s", keys.ChargedShare, s.Devices, strconv.FormatFloat(float64(s.Portion)/float64(cluster.WholePortion), 'f', -1, 64))
}

// WriteCharged is the inverse of ReadCharged, but for the namespace; nil for the zero value.
func WriteCharged(c cluster.Charged) map[string]string {
	if c.Queue == "" {
		return nil
	}
	out := map[string]string{keys.ChargedAnnotation: c.Queue + "/" + cluster.GroupName(c.Gang, c.Queue)}
	if c.Set != "" {
		out[keys.ChargedAnnotation] += "/" + c.Set
	}
	var as []string
	if c.Fixed {
		as = append(as, keys.ChargedFixed)
	}
	if !c.Share.None() {
		as = append(as, shareText(c.Share))
	}
	if len(as) > 0 {
		out[keys.ChargedAsAnnotation] = strings.Join(as, ",")
	}
	return out
}
