package filters

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestReasonsAreRegistered: every reason that is declared anywhere is known to the scheduler's registry, once, with a text.
func TestReasonsAreRegistered(t *testing.T) {
	t.Parallel()
	r := Register(builtin.Registry(), Options{})
	known, err := r.Known()
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	err = fs.WalkDir(os.DirFS("../.."), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "reasons.go") {
			return err
		}
		text, err := os.ReadFile("../../" + path)
		for _, m := range regexp.MustCompile(`Reason\{Key: "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			if declared++; known[m[1]] == nil {
				t.Errorf("%s: %s is said by no plugin of the registry, and not on the engine's list", path, m[1])
			}
		}
		return err
	})
	if err != nil || declared != len(known) || declared == 0 {
		t.Errorf("%d reasons are declared and %d known (%v)", declared, len(known), err)
	}
	for key, reason := range known {
		if reason.Text == "" && reason.Say == nil {
			t.Errorf("%s says nothing", key)
		}
		if text := (policy.Verdict{Code: policy.No, Reason: reason, Object: "o", Detail: "d", Dim: "gpu"}).String(); strings.ContainsAny(text, "{}[]") {
			t.Errorf("%s says %q: a field that there is not", key, text)
		}
	}
	r.Plugins["more"] = []policy.Factory{policy.Is(struct{}{}, &policy.Reason{Key: policy.ReasonGated.Key})}
	if _, err := engine.New(engine.Profile{}, r); err == nil || !strings.Contains(err.Error(), `"SchedulingGated" is declared twice`) {
		t.Errorf("two reasons of one key: %v", err)
	}
}

// TestVerdictsAsFiles: a verdict is written with the key of its reason, as it has been since there are files, and read back equal.
func TestVerdictsAsFiles(t *testing.T) {
	t.Parallel()
	for text, v := range map[string]policy.Verdict{
		`{"code":0}`: {},
		`{"code":1,"reason":"SchedulingGated","object":"a/g","have":2}`: {Code: policy.No, Reason: policy.ReasonGated, Object: "a/g", Have: 2},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != text {
			t.Errorf("written as %s (%v), want %s", got, err, text)
		}
		var back policy.Verdict
		if err := json.Unmarshal(got, &back); err != nil || !back.Reason.Equal(v.Reason) || back.Object != v.Object {
			t.Errorf("read as %v (%v)", back, err)
		}
	}
}
