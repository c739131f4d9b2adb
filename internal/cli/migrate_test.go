package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrateValues: a value without effect is named with the reason, and one with effect is not.
func TestMigrateValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("operator: {image: {name: other}}\nglobal: {gpuSharing: true}\nwhatever: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := NewMigrate(Deps{})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{"values", file})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "operator.image.name") || !strings.Contains(s, "whatever") || strings.Contains(s, "gpuSharing") {
		t.Error(s)
	}
}
