package cluster

import (
	"encoding/json"
	"sort"
	"strconv"
)

// interner keeps one Class per distinct spec for as long as a pod refers to it.
type interner struct {
	byKey map[string]*internEntry
	next  uint64
	buf   []byte
}

type internEntry struct {
	class *Class
	refs  int
}

func newInterner() *interner { return &interner{byKey: map[string]*internEntry{}, next: 1} }

// acquire returns the class of spec, adding a reference to it.
func (in *interner) acquire(spec *ClassSpec) *Class {
	in.buf = appendSpecKey(in.buf[:0], spec)
	if e, ok := in.byKey[string(in.buf)]; ok {
		e.refs++
		return e.class
	}
	key := string(in.buf)
	c := &Class{ID: in.next, Key: key, ClassSpec: *spec}
	if c.Charge == nil {
		c.Charge = c.Requests
	}
	in.next++
	in.byKey[key] = &internEntry{class: c, refs: 1}
	if alone, differs := spec.alone(); differs {
		c.alone = in.acquire(&alone)
	} else if site, differs := spec.site(); differs {
		c.site = in.acquire(&site)
	}
	return c
}

// site returns the spec with one of everything that it asks for, and whether that is another.
func (s *ClassSpec) site() (ClassSpec, bool) {
	differs := len(s.Align) > 0 || s.Share.Portion > 1 || s.Share.MemoryMiB > 1 || s.Share.Devices > 1
	one := func(r Resources) Resources {
		out := r.Clone()
		for d, x := range r {
			if x > 1 {
				out[d], differs = 1, true
			}
		}
		return out
	}
	out := *s
	out.Requests, out.Charge, out.Align = one(s.Requests), one(s.Charge), nil
	out.Share = Share{Devices: min(1, s.Share.Devices), Portion: min(1, s.Share.Portion), MemoryMiB: min(1, s.Share.MemoryMiB)}
	return out, differs
}

// alone returns what the spec says without a word about other pods, about claims of volumes or devices, ConfigMaps or host ports, and
// whether that is less.
func (s *ClassSpec) alone() (ClassSpec, bool) {
	if s.PodAffinity == nil && s.PodAntiAffinity == nil && len(s.Spread)+len(s.Devices)+len(s.HostPorts)+len(s.Claims)+len(s.ConfigMaps) == 0 {
		return ClassSpec{}, false
	}
	out := *s
	out.Devices, out.HostPorts, out.Claims, out.ConfigMaps = nil, nil, nil, nil
	out.PodAffinity, out.PodAntiAffinity, out.Spread, out.Namespace, out.Labels = nil, nil, nil, "", nil
	return out, true
}

func (in *interner) release(c *Class) {
	if e, ok := in.byKey[c.Key]; ok && e.class == c {
		if e.refs--; e.refs == 0 {
			delete(in.byKey, c.Key)
			for _, o := range [...]*Class{c.alone, c.site} {
				if o != nil {
					in.release(o)
				}
			}
		}
	}
}

// appendSpecKey writes a canonical text of spec. The common parts are written by hand because this runs for every pod
// that appears; the rare ones go through JSON, which sorts map keys.
func appendSpecKey(b []byte, s *ClassSpec) []byte {
	for _, x := range trimZeros(s.Requests) {
		b = strconv.AppendInt(b, x, 10)
		b = append(b, ',')
	}
	b = append(b, ';')
	if s.Charge != nil && !s.Charge.Equal(s.Requests) {
		for _, x := range trimZeros(s.Charge) {
			b = strconv.AppendInt(b, x, 10)
			b = append(b, ',')
		}
		b = append(b, 'c')
	}
	if !s.Share.None() {
		for _, x := range [...]int64{int64(s.Share.Devices), int64(s.Share.Portion), int64(s.Share.MemoryMiB)} {
			b = strconv.AppendInt(b, x, 10)
			b = append(b, '/')
		}
	}
	b = appendMap(b, s.NodeSelector)
	for i := range s.Tolerations {
		t := &s.Tolerations[i]
		b = append(b, 't')
		b = strconv.AppendQuote(b, t.Key)
		b = strconv.AppendQuote(b, string(t.Operator))
		b = strconv.AppendQuote(b, t.Value)
		b = strconv.AppendQuote(b, string(t.Effect))
	}
	b = append(b, ';')
	for _, p := range s.HostPorts {
		b = strconv.AppendQuote(b, p.IP)
		b = strconv.AppendQuote(b, p.Protocol)
		b = strconv.AppendInt(b, int64(p.Port), 10)
		b = append(b, ',')
	}
	b = append(b, ';')
	b = appendStrings(b, s.Claims)
	b = appendStrings(b, s.ConfigMaps)
	b = appendStrings(b, s.RestrictTo)
	b = appendNeeds(b, s.Align)
	for i := range s.Devices {
		d := &s.Devices[i]
		b = append(b, 'd')
		b = strconv.AppendQuote(b, d.Shared)
		b = strconv.AppendQuote(b, d.Spec)
		b = strconv.AppendQuote(b, d.Missing)
		b = strconv.AppendQuote(b, d.Queue)
		b = strconv.AppendBool(b, d.Own)
		b = strconv.AppendInt(b, d.GPUs, 10)
		b = strconv.AppendBool(b, d.Extended)
		b = appendStrings(b, d.Resources)
	}
	b = append(b, s.Unsupported...)
	if s.LegacySlices {
		b = append(b, "|legacy slices"...)
	}
	if s.Within != "" {
		b = strconv.AppendQuote(append(b, "|within "...), s.Within)
	}
	if s.Revocable {
		b = append(b, "|revocable"...)
	}
	if s.ZonesBy != "" {
		b = strconv.AppendQuote(append(b, "|zones by "...), string(s.ZonesBy))
	}
	if s.Prefers != "" {
		b = strconv.AppendQuote(append(b, "|prefers "...), s.Prefers)
	}
	b = append(b, ';')
	b = append(b, s.Namespace...)
	b = append(b, ';')
	b = appendMap(b, s.Labels)
	if s.NodeAffinity != nil || s.PodAffinity != nil || s.PodAntiAffinity != nil || len(s.Spread) > 0 {
		j, err := json.Marshal([]any{s.NodeAffinity, s.PodAffinity, s.PodAntiAffinity, s.Spread})
		if err != nil { // these types marshal by construction
			panic("cluster: class key: " + err.Error())
		}
		b = append(b, j...)
	}
	return b
}

func appendMap(b []byte, m map[string]string) []byte {
	if len(m) > 0 {
		keys := make([]string, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			b = strconv.AppendQuote(b, k)
			b = append(b, '=')
			b = strconv.AppendQuote(b, m[k])
		}
	}
	return append(b, ';')
}

func appendStrings(b []byte, ss []string) []byte {
	for _, s := range ss {
		b = strconv.AppendQuote(b, s)
	}
	return append(b, ';')
}

func trimZeros(r Resources) Resources {
	for len(r) > 0 && r[len(r)-1] == 0 {
		r = r[:len(r)-1]
	}
	return r
}
