package ui

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestVendored: what others wrote and tests use is what the lock says, byte for byte, with its licence; and nothing lies beside it.
func TestVendored(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/axe/lock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Name, Version, Licence, From, Integrity string
		Files                                   map[string]string
	}
	if err := yaml.UnmarshalStrict(text, &lock); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob("testdata/axe/*")
	if err != nil || len(found) != len(lock.Files)+1 {
		t.Errorf("%v, and the lock: %v", found, err)
	}
	for name, want := range lock.Files { // order: each on its own
		text, err := os.ReadFile(filepath.Join("testdata/axe", name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); fmt.Sprintf("%x", sum) != want {
			t.Errorf("%s is not the file of %s %s that the lock names", name, lock.Name, lock.Version)
		}
	}
}
