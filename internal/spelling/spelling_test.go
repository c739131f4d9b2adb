package spelling

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		name  string
		known []string
		most  int
		want  string
	}{
		{"reserch", []string{"research", "default"}, 2, "research"},
		{"reserch", []string{"default"}, 2, ""},
		{"reserch", nil, 100, ""},
		{"Leader_Elect", []string{"leader-elect"}, 0, "leader-elect"}, // case and _ are no letters changed
		{"bat", []string{"hat", "cat"}, 1, "cat"},                     // two are as near: the first
		{"", []string{"a"}, 1, "a"},
		{"tpoology", []string{"topology", "ray", "abc"}, Any, "topology"},
		{"gpu", []string{"topology", "gpupack", "abd", "abc"}, Any, "abc"},
		{"", []string{"abd", "abc"}, Any, "abc"},
		{"ab", []string{"ba"}, 1, ""}, // two letters are in each other's place: two changes
	} {
		if got := Nearest(c.name, c.known, c.most); got != c.want {
			t.Errorf("Nearest(%q, %q, %d) = %q, want %q", c.name, c.known, c.most, got, c.want)
		}
	}
}
