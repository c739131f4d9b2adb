package server

import (
	"slices"
	"strings"
	"testing"
)

// TestEmulate: which versions of Kubernetes a lab can behave like.
func TestEmulate(t *testing.T) {
	t.Parallel()
	for like, want := range map[string]string{
		"": "", "1.36": "", "1.35": "--emulated-version=1.35", "1.33": "--emulated-version=1.33",
		"1.32": "1.33 to 1.36", "1.37": "1.33 to 1.36", "1.34.1": "1.33 to 1.36", "v1.34": "1.33 to 1.36", "34": "1.33 to 1.36", "1.": "1.33 to 1.36", "1.-1": "1.33 to 1.36",
	} {
		got, err := emulate("v1.36.3", like)
		if err != nil && (want == "" || !strings.Contains(err.Error(), want)) || err == nil && !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %v, %v; want %q", like, got, err, want)
		}
	}
}
