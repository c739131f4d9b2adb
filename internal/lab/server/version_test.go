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
		"": "", "1.37": "", "1.36": "--emulated-version=1.36", "1.34": "--emulated-version=1.34",
		"1.33": "1.34 to 1.37", "1.38": "1.34 to 1.37", "1.34.1": "1.34 to 1.37", "v1.34": "1.34 to 1.37", "34": "1.34 to 1.37", "1.": "1.34 to 1.37", "1.-1": "1.34 to 1.37",
	} {
		got, err := emulate("v1.37.2", like)
		if err != nil && (want == "" || !strings.Contains(err.Error(), want)) || err == nil && !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %v, %v; want %q", like, got, err, want)
		}
	}
}
