package ledgers_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/vm/config"
)

// TestVirtletConfig: every key of Virtlet's has a row, no other has one, and rows, program and Virtlet's list say the same.
func TestVirtletConfig(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	rows := all["config"]
	program := map[string]config.Key{}
	for _, k := range config.Keys() {
		program[k.Field] = k
	}
	list, err := os.Open("testdata/virtlet-config.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	known := map[string]bool{}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 4 {
			t.Fatalf("%q is not: key flag variable default", lines.Text())
		}
		for i, s := range fields {
			if s == "-" {
				fields[i] = ""
			}
		}
		name, flag, env, value := fields[0], fields[1], fields[2], fields[3]
		known[name] = true
		row, ok := rows[name]
		k, there := program[name]
		switch {
		case !ok:
			t.Errorf("%s: there is no row", name)
		case !there:
			t.Errorf("%s: the program does not know it", name)
		case row.Default != value:
			t.Errorf("%s: default %q, Virtlet's is %q", name, row.Default, value)
		case k.Flag != flag || k.Env != env:
			t.Errorf("%s: the program has flag %q and variable %q, Virtlet %q and %q", name, k.Flag, k.Env, flag, env)
		case row.Without != k.Without:
			t.Errorf("%s: the row says %q, the program %q", name, row.Without, k.Without)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range rows { // order: each by itself
		if !known[name] {
			t.Errorf("%s: a row that Virtlet has no key for", name)
		}
	}
	for name := range program { // order: each by itself
		if !known[name] {
			t.Errorf("%s: the program has it, Virtlet has not", name)
		}
	}
}

// TestVirtletRows: every row says one thing, what it names as taken is a test or a command, and reasons are reasons.
func TestVirtletRows(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	tests := testFunctions(t, repositoryRoot(t))
	for section, rows := range all { // order: each by itself
		for name, r := range rows { // order: each by itself
			switch {
			case (r.Taken == "") == (r.Without == ""):
				t.Errorf("%s %s: want exactly one of taken and without", section, name)
			case strings.HasPrefix(r.Taken, "muster-vm "):
			case r.Taken != "" && !tests[r.Taken]:
				t.Errorf("%s %s: there is no Go test %s", section, name, r.Taken)
			case r.Without != "" && len(strings.Fields(r.Without)) < 3:
				t.Errorf("%s %s: %q is no reason", section, name, r.Without)
			}
		}
	}
}

// TestVirtletCalls: every call of today's CRI has a row, no other has one, and all that Virtlet answered are among them.
func TestVirtletCalls(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	rows, calls := all["calls"], map[string]bool{}
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			calls[m.MethodName] = true
		}
		for _, s := range d.Streams {
			calls[s.StreamName] = true
		}
	}
	list, err := os.ReadFile("testdata/virtlet-calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	old := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			old[line] = true
		}
	}
	for name := range calls { // order: each by itself
		if row, ok := rows[name]; !ok {
			t.Errorf("%s: there is no row", name)
		} else if strings.HasPrefix(row.Differs, "new") == old[name] && row.Without == "" {
			t.Errorf("%s: the row says %q, and Virtlet answered it: %v", name, row.Differs, old[name])
		}
	}
	for _, names := range []map[string]bool{old, keys(rows)} { // order: each by itself
		for name := range names { // order: each by itself
			if !calls[name] {
				t.Errorf("%s is no call of the CRI v1", name)
			}
		}
	}
}

// TestVirtletFields: every field of a pod's and a container's configuration has a row, its own or that of a message that it is in, and every row is of a field.
func TestVirtletFields(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	rows, fields := all["fields"], map[string]bool{}
	var walk func(path string, m protoreflect.MessageDescriptor, covered bool)
	walk = func(path string, m protoreflect.MessageDescriptor, covered bool) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := path + "." + string(f.Name())
			_, own := rows[name]
			fields[name] = true
			if f.Message() != nil && !f.IsMap() {
				walk(name, f.Message(), covered || own)
			} else if !covered && !own {
				t.Errorf("%s: there is no row", name)
			}
		}
	}
	walk("sandbox", (&runtimeapi.PodSandboxConfig{}).ProtoReflect().Descriptor(), false)
	walk("container", (&runtimeapi.ContainerConfig{}).ProtoReflect().Descriptor(), false)
	for name := range rows { // order: each by itself
		if !fields[name] {
			t.Errorf("%s is no field of the CRI v1", name)
		}
	}
}

func keys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
