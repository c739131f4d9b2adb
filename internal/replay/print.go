package replay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// packed is a pod as it is printed: the state, and the index of its class.
type packed struct {
	state cluster.Event
	class int
}

// print writes a file as json.Marshal would with its pods, nodes and gangs in it, one of them at a time: of a large cluster the text is many megabytes, and so would be a copy of its pods.
func (f *file) print(w *bufio.Writer) error {
	v := reflect.ValueOf(f).Elem()
	separator := byte('{')
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		rows := f.rows(name)
		if name == "" || option == "omitzero" && rows == nil && v.Field(i).IsZero() {
			continue
		}
		_, _ = fmt.Fprintf(w, "%c%q:", separator, name) // the first error is kept, and Flush's
		separator = ','
		if rows == nil {
			if err := value(w, v.Field(i).Interface()); err != nil {
				return err
			}
			continue
		}
		next := byte('[')
		for row := range rows {
			_ = w.WriteByte(next)
			if err := value(w, row); err != nil {
				return err
			}
			next = ','
		}
		_ = w.WriteByte(']')
	}
	_ = w.WriteByte('}')
	return nil
}

// rows are the elements of a long list that is not empty; nil for any other field.
func (f *file) rows(name string) iter.Seq[any] {
	switch {
	case name == "nodes" && len(f.Nodes) > 0:
		return each(len(f.Nodes), func(i int) any { return &f.Nodes[i] })
	case name == "gangs" && len(f.Gangs) > 0:
		return each(len(f.Gangs), func(i int) any { return &f.Gangs[i] })
	case name == "pods" && len(f.packed) > 0:
		var p placed // one for all
		return each(len(f.packed), func(i int) any {
			state, _ := f.packed[i].state.(cluster.PodState)
			p = placed{pod: pod(state), Class: f.packed[i].class, Phase: state.Phase.String()}
			return &p
		})
	}
	return nil
}

func each(n int, of func(i int) any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range n {
			if !yield(of(i)) {
				return
			}
		}
	}
}

// value writes one.
func value(w io.Writer, of any) error {
	text, err := json.Marshal(of)
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write a cycle: %w", err)
	}
	return nil
}

// buffer is how much is written at a time: a change is short, and there are many.
func (e *printed) buffer() int {
	if e.Kind == Keyframe {
		return 1 << 16
	}
	return 1 << 12
}

// print writes an entry as a line.
func (e *printed) print(to io.Writer) error {
	w := bufio.NewWriterSize(to, e.buffer())
	head := *e
	head.File, head.Gone, head.Again = nil, nil, nil
	text, err := json.Marshal(&head)
	if err != nil {
		return fmt.Errorf("write a cycle: %w", err)
	}
	_, _ = w.Write(text[:len(text)-1]) // the kind is in it at least
	if e.File != nil {
		_, _ = w.WriteString(`,"file":`)
		if err := e.File.print(w); err != nil {
			return err
		}
	}
	if e.Gone != nil {
		_, _ = w.WriteString(`,"gone":`)
		if err := value(w, e.Gone); err != nil {
			return err
		}
	}
	if e.Again != nil {
		_, _ = w.WriteString(`,"again":`)
		if err := value(w, e.Again); err != nil {
			return err
		}
	}
	_, _ = w.WriteString("}\n")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write a cycle: %w", err)
	}
	return nil
}
