package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/entry"
)

// Write writes the case. Equal cases are written as equal bytes.
func Write(w io.Writer, c *Case) error {
	f, err := pack(c)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	b := bufio.NewWriterSize(z, 1<<16)
	err = f.print(b)
	if err == nil {
		_ = b.WriteByte('\n')
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

// pack turns a case into what is written.
func pack(c *Case) (*file, error) {
	f := &file{
		Format: Format, Version: c.Version, Now: c.Image.Now, Profile: c.Profile, StorageCapacity: c.StorageCapacity,
		Dims: c.Image.Dims, Postponed: c.Image.Memory.Postponed, Decided: c.Decided, Plans: c.Plans,
	}
	classes := map[string]int{} // by their text
	for _, event := range c.Image.Events {
		switch e := event.(type) {
		case cluster.NodeState:
			f.Nodes = append(f.Nodes, e)
		case cluster.TopologyState:
			f.Topologies = append(f.Topologies, e)
		case cluster.QueueState:
			f.Queues = append(f.Queues, e)
		case cluster.UsageState:
			f.Usage = e.Queues
		case cluster.GangState:
			f.Gangs = append(f.Gangs, e)
		case cluster.PodState:
			class, err := f.class(classes, &e)
			if err != nil {
				return nil, err
			}
			f.packed = append(f.packed, packed{event, class})
		case cluster.ObjectState:
			if err := f.object(e); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("write a snapshot: an event of type %T is no state", e)
		}
	}
	var err error
	f.Memory, err = packMemory(&c.Image.Memory)
	return f, err
}

// class returns the index of the pod's class, which it adds if it is new.
func (f *file) class(known map[string]int, p *cluster.PodState) (int, error) {
	c := class{Requests: p.Requests, Charge: p.Charge}
	if p.Spec != nil {
		c.Spec = *p.Spec
		c.Spec.Requests, c.Spec.Charge = nil, nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return 0, fmt.Errorf("write pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	i, ok := known[string(text)]
	if !ok {
		i = len(f.Classes)
		known[string(text)] = i
		f.Classes = append(f.Classes, c)
	}
	return i, nil
}

// object adds an object that is carried for filters.
func (f *file) object(e cluster.ObjectState) error {
	if dialect.Blank(e.Kind) == nil {
		return fmt.Errorf("write a snapshot: objects of kind %s are not known", e.Kind)
	}
	text, err := json.Marshal(e.Object)
	if err != nil {
		return fmt.Errorf("write %s %s: %w", e.Kind, e.Key, err)
	}
	if e.Kind == cluster.ConfigMaps { // of these only the existence matters, and what they contain is nobody's business
		text = []byte("{}")
	}
	if f.Objects == nil {
		f.Objects = map[cluster.ObjectKind]map[string]json.RawMessage{}
	}
	entry.Put(f.Objects, e.Kind, e.Key, text)
	return nil
}

func packMemory(m *cluster.Memory) (memory, error) {
	out := memory{Memory: *m}
	if len(m.Answers) > 0 {
		out.Rests = map[string]rest{}
	}
	for question, r := range m.Answers { // order: into a map
		of := rest{Until: r.Until, Wake: r.Wake}
		if r.Asked > 0 && r.Asked <= m.Generation {
			of.Ago = m.Generation - r.Asked + 1
		}
		switch why := r.Why.(type) {
		case engine.Attempt:
			of.Why = &why
		case *engine.Told:
			of.Told = why
		default:
			return out, fmt.Errorf("write a snapshot: the answer to %q is of type %T", question, r.Why)
		}
		out.Rests[question] = of
	}
	return out, nil
}
