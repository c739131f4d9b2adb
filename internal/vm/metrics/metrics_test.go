package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// shown is the page without what Go and the process say of themselves.
func shown(t *testing.T, s interface {
	Gather() ([]*dto.MetricFamily, error)
},
) string {
	t.Helper()
	families, err := s.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out.String()
}

// TestTogether: the pages of several processes are one; one that fails, and one that does not answer, are down and hinder no other, which is not waited for longer than the patience.
func TestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := func(s *Set) Source { return func(context.Context) ([]*dto.MetricFamily, error) { return s.Gather() } }
		a, b := New("a"), New("b")
		a.Call("Add", 20*time.Millisecond, "")
		a.Call("Add", time.Second, "Unavailable")
		b.Call("Add", 0, "")
		b.Gauge("muster_vm_things", "Things.", "kind", func() map[string]float64 { return map[string]float64{"x": 3} })
		b.Gauge("muster_vm_unread", "What cannot be read now.", "", func() map[string]float64 { return nil })
		b.Counter("muster_vm_gone_total", "Gone.", "kind", "x", "y")("y")
		began := time.Now()
		got := shown(t, Together(map[string]Source{
			"a": of(a), "b": of(b),
			"broken": func(context.Context) ([]*dto.MetricFamily, error) { return nil, errors.New("no") },
			"hangs":  func(ctx context.Context) ([]*dto.MetricFamily, error) { <-ctx.Done(); return nil, ctx.Err() },
		}))
		if took := time.Since(began); took != patience {
			t.Errorf("it took %v", took)
		}
		for _, want := range []string{
			`muster_vm_operations_total{operation_type="Add",process="a"} 2`, `muster_vm_operations_total{operation_type="Add",process="b"} 1`,
			`muster_vm_operations_errors_total{code="Unavailable",operation_type="Add",process="a"} 1`, `muster_vm_operations_duration_seconds_bucket{operation_type="Add",process="a",le="0.03125"} 1`,
			`muster_vm_operations_duration_seconds_sum{operation_type="Add",process="a"} 1.02`, `muster_vm_things{kind="x",process="b"} 3`,
			`muster_vm_gone_total{kind="x",process="b"} 0`, `muster_vm_gone_total{kind="y",process="b"} 1`,
			`muster_vm_process_up{process="a"} 1`, `muster_vm_process_up{process="b"} 1`, `muster_vm_process_up{process="broken"} 0`, `muster_vm_process_up{process="hangs"} 0`,
		} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("%s is not in the page:\n%s", want, got)
			}
		}
		if strings.Contains(got, "unread") {
			t.Errorf("what could not be read is shown:\n%s", got)
		}
	})
}

// TestNobodyCounts: where nobody wants metrics, nothing is counted and nothing fails.
func TestNobodyCounts(t *testing.T) {
	t.Parallel()
	var s *Set
	s.Call("Add", time.Second, "Internal")
	s.Counter("muster_vm_gone_total", "Gone.", "kind", "x")("x")
	s.Gauge("muster_vm_things", "Things.", "", func() map[string]float64 { panic("it is read") })
}
