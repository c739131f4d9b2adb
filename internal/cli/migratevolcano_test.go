package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/migrate/volcano"
)

// TestTwelveDifferences: what is told of a cluster of Volcano's with twelve differences, as it is drawn.
func TestTwelveDifferences(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "volcano-twelve.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := schemeOf(migrationKinds()...)
	if err != nil {
		t.Fatal(err)
	}
	in, decoder := &volcano.Objects{}, serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		in.Add(object.(client.Object))
	}
	report, err := volcano.Judge(in, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, f := range report.Findings {
		rows[f.Row] = true
	}
	if len(rows) != 12 || report.Stops() {
		t.Errorf("%d differences: %v", len(rows), rows)
	}
	drawn := drawMigration(report)
	for _, line := range strings.Split(drawn, "\n") {
		if len([]rune(line)) > form.Width {
			t.Errorf("%d letters: %s", len([]rune(line)), line)
		}
	}
	file := filepath.Join("testdata", "volcano-twelve.txt")
	if *update {
		if err := os.WriteFile(file, []byte(drawn), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != drawn {
		t.Errorf("%v: it is otherwise than %s, which go test -update rewrites:\n%s", err, file, drawn)
	}
}
