package profile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// TestUnknownNames: a plugin that nobody has is left out of a profile, and told with the name that was probably meant; an action is not left
// out; names that a shard switches off are told, too; a shard whose names are known is not touched.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	r := builtin.Registry()
	off := false
	for name, c := range map[string]struct {
		plugins, actions map[string]Override
		want             []string
		wrong            string
	}{
		"all known": {plugins: map[string]Override{"numa": {}, "topology": {Enabled: &off}}, actions: map[string]Override{"consolidation": {Enabled: &off}}},
		"a plugin":  {plugins: map[string]Override{"minruntim": {Arguments: map[string]string{"defaultPreemptMinRuntime": "1h"}}}, want: []string{"plugins.minruntim is the name of no plugin; the nearest that is known is minruntime"}},
		"off":       {plugins: map[string]Override{"gpu-pack": {Enabled: &off}}, want: []string{"plugins.gpu-pack is the name of no plugin; the nearest that is known is gpupack"}},
		"action off": {
			actions: map[string]Override{"consolidaton": {Enabled: &off}},
			want:    []string{"actions.consolidaton is the name of no action; the nearest that is known is consolidation"},
		},
		"action":   {actions: map[string]Override{"reclam": {}}, want: []string{"actions.reclam is the name of no action; the nearest that is known is reclaim"}, wrong: `unknown action "reclam"`},
		"argument": {plugins: map[string]Override{"proportion": {Arguments: map[string]string{"kvalue": "2"}}}, want: []string{`plugins is understood in part: plugin "proportion" does not know argument "kvalue"; it has no effect`}},
		"endless":  {plugins: map[string]Override{strings.Repeat("x", 1000): {}}, want: []string{"plugins." + strings.Repeat("x", 64) + "… is the name of no plugin; the nearest that is known is "}},
	} {
		s := Shard{Plugins: c.plugins, Actions: c.actions}
		p, err := ForShard(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Check(s, p, r)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i].String(), c.want[i]) {
				t.Errorf("%s: %s, want %s", name, got[i], c.want[i])
			}
		}
	}
	p, err := Parse([]byte("actions: allocate\ntiers:\n- plugins: [{name: predicates}, {name: nosuch}]\n- plugins: [{name: priorty}, {name: priority}]"))
	if err != nil {
		t.Fatal(err)
	}
	known, unknown := Known(p, r)
	want := [][]engine.PluginUse{{{Name: "predicates"}}, {{Name: "priority"}, {Name: "disruptionbudgets"}}}
	if diff := cmp.Diff(want, known.Tiers); diff != "" || len(unknown) != 2 || !strings.HasPrefix(unknown[1].String(), "tiers[1].plugins.priorty is the name of no plugin; the nearest that is known is priority") {
		t.Errorf("%v (-want +got):\n%s", unknown, diff)
	}
	if len(p.Tiers[0]) != 2 {
		t.Error("the profile that was given was changed")
	}
}
