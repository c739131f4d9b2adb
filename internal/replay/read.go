package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
)

// Limits bound what a reader takes in, in bytes.
type Limits struct {
	// Packed is how long the file may be, Unpacked how much it may unpack to.
	Packed, Unpacked int64
}

// DefaultLimits are enough for a hundred thousand pods: 256 MiB, and a GiB unpacked.
func DefaultLimits() Limits { return Limits{Packed: 256 << 20, Unpacked: 1 << 30} }

// ErrTooLarge says that a file, or what it unpacks to, is larger than the reader's limits.
var ErrTooLarge = errors.New("larger than a snapshot may be")

// Read reads a case. Of a file that is no snapshot of this format, or that describes a cluster that cannot be, it returns an error
// that says what and where.
func Read(r io.Reader, l Limits) (*Case, error) {
	packed := bufio.NewReader(&capped{r: r, left: l.Packed, of: l.Packed})
	magic, err := packed.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	var in io.Reader = packed
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(packed)
		if err != nil {
			return nil, fmt.Errorf("unpack a snapshot: %w", err)
		}
		in = z
	} // else JSON that somebody unpacked to look at it
	d := json.NewDecoder(&capped{r: in, left: l.Unpacked, of: l.Unpacked})
	var text json.RawMessage
	if err := d.Decode(&text); err != nil {
		return nil, fmt.Errorf("read a snapshot: it is not JSON, packed by gzip or plain: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read a snapshot: something follows after its end")
	}
	// The format first: another one has other fields.
	var head struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	if head.Format != Format {
		return nil, fmt.Errorf("read a snapshot: its format is %q; this version of muster reads %q", shown(head.Format), Format)
	}
	var f file
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&f); err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	return unpack(&f)
}

// shown is the beginning of a text that may be of any length.
func shown(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// capped ends with an error where a plain limit would end as if all had been read.
type capped struct {
	r        io.Reader
	left, of int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		var one [1]byte
		if n, err := c.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, c.of)
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// unpack makes a case of what was read.
func unpack(f *file) (*Case, error) {
	v, err := newValidator(f)
	if err != nil {
		return nil, err
	}
	if err := v.check(f); err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	c := &Case{
		Version: f.Version, Profile: f.Profile, StorageCapacity: f.StorageCapacity, Decided: f.Decided, Plans: f.Plans,
		Image: cluster.Image{Now: f.Now, Dims: f.Dims, Memory: f.Memory.unpack()},
	}
	im := &c.Image
	im.Memory.Postponed = f.Postponed
	im.Events = make([]cluster.Event, 0, len(f.Nodes)+len(f.Topologies)+len(f.Queues)+1+len(f.Gangs)+len(f.Pods))
	once := alike{names: map[string]string{}, trees: map[treeKey][][]cluster.Set{}}
	for i := range f.Nodes {
		once.name(&f.Nodes[i].Name)
		im.Events = append(im.Events, f.Nodes[i])
	}
	for i := range f.Topologies {
		im.Events = append(im.Events, f.Topologies[i])
	}
	for i := range f.Queues {
		im.Events = append(im.Events, f.Queues[i])
	}
	if f.Usage != nil {
		im.Events = append(im.Events, cluster.UsageState{Queues: f.Usage})
	}
	for i := range f.Gangs {
		g := &f.Gangs[i]
		once.key(&g.Key)
		once.name(&g.Queue)
		g.Sets = once.tree(g.Sets)
		im.Events = append(im.Events, *g)
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		k := &f.Classes[p.Class]
		st := cluster.PodState(p.pod)
		once.key(&st.Gang)
		for _, name := range []*string{&st.Namespace, &st.NodeName, &st.SetName} {
			once.name(name)
		}
		st.Requests, st.Charge, st.Spec, st.Phase = k.Requests, k.Charge, &k.Spec, v.phases[p.Phase]
		im.Events = append(im.Events, st)
	}
	if err := unpackObjects(f, im); err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	return c, nil
}

// alike has what many objects of a file say alike be in memory once.
type alike struct {
	names map[string]string
	trees map[treeKey][][]cluster.Set
}

// treeKey is what trees that are the same have in common, and treesOfKey how many of one are compared.
type treeKey struct {
	sets int
	min  int32
}

const treesOfKey = 4

func (a *alike) name(s *string) {
	if known, ok := a.names[*s]; ok {
		*s = known
	} else {
		a.names[*s] = *s
	}
}

func (a *alike) key(k *cluster.Key) {
	a.name(&k.Face)
	a.name(&k.Namespace)
	a.name(&k.Name)
}

func (a *alike) tree(sets []cluster.Set) []cluster.Set {
	if len(sets) == 0 {
		return sets
	}
	k := treeKey{len(sets), sets[len(sets)-1].Min}
	known := a.trees[k]
	for _, t := range known {
		if reflect.DeepEqual(t, sets) {
			return t
		}
	}
	if len(known) < treesOfKey {
		a.trees[k] = append(known, sets)
	}
	return sets
}

// unpackObjects adds what is carried for filters.
func unpackObjects(f *file, im *cluster.Image) error {
	for _, kind := range sorted(f.Objects) {
		for _, key := range sorted(f.Objects[kind]) {
			object := dialect.Blank(kind)
			if object == nil {
				return fmt.Errorf("objects of kind %q are not known", shown(string(kind)))
			}
			d := json.NewDecoder(bytes.NewReader(f.Objects[kind][key]))
			d.DisallowUnknownFields()
			if err := d.Decode(object); err != nil {
				return fmt.Errorf("%s %s: %w", kind, shown(key), err)
			}
			im.Events = append(im.Events, cluster.ObjectState{Kind: kind, Key: key, Object: object})
		}
	}
	return nil
}
