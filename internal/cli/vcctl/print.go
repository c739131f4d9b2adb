package vcctl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/cli/form"
)

// maxFile is how many bytes of a file are read: an API server takes no larger object.
const maxFile = 3 << 20

func checkOutput(output string) error { return form.Check(output) }

// emit prints objects as a table with titles, a row each, or as a list of objects. A terminal's table is cut to its width; what programs read is
// whole.
func emit[T any, P interface {
	*T
	client.Object
}](c *call, objects []T, titles []string, row func(P) []string) error {
	items := make([]P, len(objects))
	for i := range objects {
		items[i] = &objects[i]
		gvk, err := c.client.GroupVersionKindFor(items[i])
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		items[i].GetObjectKind().SetGroupVersionKind(gvk)
		items[i].SetManagedFields(nil)
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	return form.Emit(c.OutOrStdout(), c.output, list, func() string {
		rows := make([][]string, len(items))
		for i, o := range items {
			rows[i] = row(o)
		}
		return table(titles, rows, terminal(c.OutOrStdout()))
	})
}

// table draws rows below titles; cut says that it must fit a terminal.
func table(titles []string, rows [][]string, cut bool) string {
	columns := make([]form.Column, len(titles))
	for i, t := range titles {
		columns[i] = form.Column{Title: t, Keep: !cut}
	}
	return form.Table(columns, rows)
}

// emitOne prints one object as YAML or JSON.
func emitOne(c *call, o client.Object, output string) error {
	gvk, err := c.client.GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	o.SetManagedFields(nil)
	return form.Emit(c.OutOrStdout(), output, o, nil)
}

// age is how long ago t was, in the words of kubectl.
func (o Options) age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(o.now().Sub(t.Time))
}

// day is the date of t.
func day(t metav1.Time) string { return t.Format(time.DateOnly) }

// dash stands for a value that there is not, so that a row has as many words as the table has columns.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// read reads the objects of one kind in a YAML file. Any other kind is refused, before anything is done. What no field is called is warned of,
// and left out.
func read[T any, P interface {
	*T
	client.Object
}](c *call, file, kind, apiVersion string) ([]T, error) {
	if ext := filepath.Ext(file); ext != ".yaml" && ext != ".yml" {
		return nil, fmt.Errorf("%s: the file's name must end in .yaml or .yml", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: the file has more than %d bytes", file, maxFile)
	}
	var out []T
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, n, err)
		}
		var is *metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, n, err)
		}
		if is == nil { // nothing but comments
			continue
		}
		if is.Kind != kind || is.APIVersion != apiVersion {
			return nil, fmt.Errorf("%s: document %d is a %q of %q; it must be a %s of %s", file, n, is.Kind, is.APIVersion, kind, apiVersion)
		}
		o := P(new(T))
		if err := yaml.Unmarshal(document, o); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, n, err)
		}
		if err := yaml.UnmarshalStrict(document, P(new(T))); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s: document %d: %v\n", file, n, err)
		}
		if o.GetName() == "" && o.GetGenerateName() == "" {
			return nil, fmt.Errorf("%s: document %d: metadata.name is missing", file, n)
		}
		out = append(out, *o)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no %s in it", file, kind)
	}
	return out, nil
}
