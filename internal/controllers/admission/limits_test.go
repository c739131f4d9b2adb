package admission

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestManyClaims: a pod has so many device claims and no more.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	claims := func(n int) string {
		var b strings.Builder
		b.WriteString("spec: {resourceClaims: [")
		for i := range n {
			fmt.Fprintf(&b, "{name: c%d, resourceClaimName: c%d},", i, i)
		}
		return b.String() + "]}"
	}
	if wrong := sharing().Validate(pod(t, claims(maxClaims))); wrong != nil {
		t.Error(wrong)
	}
	wrong := sharing().Validate(pod(t, claims(maxClaims+1)))
	if got := strings.Join(lines(wrong), "; "); got != "spec.resourceClaims: Too many: 65: must have at most 64 items" {
		t.Error(got)
	}
}

// TestBrief: a user's text is cut in an error, between characters.
func TestBrief(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "short", strings.Repeat("x", 1<<20), "x" + strings.Repeat("é", 100), strings.Repeat("\xff", 100)} {
		got := brief(s)
		if len(got) > shown+len("…") || len(s) <= shown && got != s || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%.70q is told as %q", s, got)
		}
	}
}

// TestManyWarnings: they are few and short, whatever there is to say.
func TestManyWarnings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("subGroups:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "- {name: p%d, minSubGroup: 5}\n- {name: c%d, parent: p%d, minMember: 1}\n", i, i, i)
	}
	wrong, warnings := ValidatePodGroup(podGroup(t, b.String()), nil)
	if len(wrong) != 0 || len(warnings) != 17 || warnings[16] != "and 84 more" {
		t.Errorf("%v; %d warnings, the last is %q", wrong, len(warnings), warnings[len(warnings)-1])
	}
	_, warnings = (&Rules{}).ValidateQueue(queue(t, `{metadata: {name: q, annotations: {muster.dev/disruption-budgets: `+strings.Repeat("x", 5000)+`}}, spec: {parentQueue: `+strings.Repeat("y", 5000)+`, resources: {gpu: {quota: -5}, cpu: {quota: -5}, memory: {quota: -5}}}}`), nil, Forest{})
	if len(warnings) == 0 {
		t.Fatal("nothing is said")
	}
	for _, w := range warnings {
		if len(w) > maxWarning+len("…") {
			t.Errorf("a warning of %d bytes", len(w))
		}
	}
}
