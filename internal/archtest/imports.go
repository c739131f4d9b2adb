package archtest

import (
	"fmt"
	"strings"
)

// Directories that several rules speak of.
const (
	dirAPI         = "api"
	dirApp         = "internal/app"
	dirClimb       = "internal/climb"
	dirCluster     = "internal/cluster"
	dirExplain     = "internal/explain"
	dirFairshare   = "internal/fairshare"
	dirEngine      = "internal/engine"
	dirLedger      = dirEngine + "/ledger"
	dirPolicy      = dirEngine + "/policy"
	dirRecorder    = dirEngine + "/recorder"
	dirRules       = dirEngine + "/rules"
	dirPlacer      = dirEngine + "/placer"
	dirActions     = dirEngine + "/actions"
	dirSolver      = dirEngine + "/solver"
	dirPlugins     = dirEngine + "/plugins"
	dirBuiltin     = dirEngine + "/builtin"
	dirEngineTest  = dirEngine + "/enginetest"
	dirDialect     = "internal/dialect"
	dirKube        = "internal/kube"
	dirApply       = dirKube + "/apply"
	dirWrite       = dirKube + "/write"
	dirFilters     = dirKube + "/filters"
	dirControllers = "internal/controllers"
	dirKubetest    = "internal/kubetest"
	dirLab         = "internal/lab"
	dirProfile     = "internal/profile"
	dirReplay      = "internal/replay"
	dirRoles       = "internal/roles"
	dirSee         = "internal/see"
	dirSim         = "internal/sim"
	dirEntry       = "internal/entry"
	dirSpelling    = "internal/spelling"
	dirUsage       = "internal/usage"
	dirVM          = "internal/vm"
)

// eachImport calls visit for every import of a product (non-test) file in the directories that in accepts.
func (t *Tree) eachImport(in func(dir string) bool, visit func(*File, Import)) {
	for _, f := range t.Files {
		if f.Test || !in(f.Dir) {
			continue
		}
		for _, imp := range f.Imports {
			visit(f, imp)
		}
	}
}

// engineArea names the part of the engine that a directory belongs to: its own children by their roots, everything else of the
// engine as the core itself.
func engineArea(dir string) string {
	for _, area := range []string{dirLedger, dirPolicy, dirRecorder, dirRules, dirPlacer, dirActions, dirSolver, dirPlugins, dirBuiltin, dirEngineTest} {
		if under(dir, area) {
			return area
		}
	}
	if under(dir, dirEngine) {
		return dirEngine
	}
	return ""
}

// plugin is the name of the plugin that owns a directory below internal/engine/plugins, or empty.
func plugin(dir string) string {
	rest, ok := strings.CutPrefix(dir, dirPlugins+"/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// checkEngineLayers is D2.
func checkEngineLayers(t *Tree) ([]Violation, error) {
	// The parts of a session, each of which knows itself and those before it; then who is written against them.
	mayImport := map[string][]string{
		dirLedger:   {dirLedger},
		dirPolicy:   {dirPolicy, dirLedger},
		dirRecorder: {dirRecorder, dirPolicy, dirLedger},
		dirRules:    {dirRules, dirRecorder, dirPolicy, dirLedger},
		dirPlacer:   {dirPlacer, dirRules, dirRecorder, dirPolicy, dirLedger},
		dirEngine:   {dirEngine, dirPlacer, dirRules, dirRecorder, dirPolicy, dirLedger},
		dirSolver:   {dirSolver, dirEngine, dirRecorder, dirPolicy, dirLedger},
		dirActions:  {dirActions, dirSolver, dirEngine, dirRecorder, dirPolicy, dirLedger},
		dirPlugins:  {dirPlugins, dirPolicy, dirLedger},
		dirBuiltin:  {dirBuiltin, dirPlugins, dirActions, dirEngine, dirPolicy},
	}
	var out []Violation
	t.eachImport(func(dir string) bool { return mayImport[engineArea(dir)] != nil }, func(f *File, imp Import) {
		from, to := engineArea(f.Dir), engineArea(imp.Local)
		add := func(what string) {
			out = append(out, Violation{Where: t.Pos(imp.Pos), What: what})
		}
		switch {
		case imp.Local == "":
		case to == "":
			// fairshare belongs to the plugins: the one that owns the exclusive point of shares.
			if imp.Local == dirCluster || under(imp.Local, dirCluster) || (from == dirPlugins && under(imp.Local, dirFairshare)) {
				return
			}
			add(fmt.Sprintf("%s imports %s; this part of the engine may know only the model", f.Dir, imp.Local))
		case from == dirPlugins && to == dirPlugins && plugin(f.Dir) != plugin(imp.Local):
			add(fmt.Sprintf("plugin %s imports plugin %s", plugin(f.Dir), plugin(imp.Local)))
		default:
			for _, ok := range mayImport[from] {
				if to == ok {
					return
				}
			}
			known := "nothing else"
			if below := mayImport[from][1:]; len(below) > 0 {
				known = strings.Join(below, ", ")
			}
			add(fmt.Sprintf("%s imports %s; of the engine it may know %s", f.Dir, imp.Local, known))
		}
	})
	live := []string{"k8s.io/client-go/tools/clientcmd", "sigs.k8s.io/controller-runtime"}
	t.eachImport(func(dir string) bool { return under(dir, dirFilters) }, func(f *File, imp Import) {
		if underAny(imp.Path, live) || (under(imp.Local, dirKube) && !under(imp.Local, dirFilters)) {
			out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("filters import %s: a filter reads the View and nothing live", imp.Path)})
		}
	})
	return out, nil
}

// checkAPI is D3.
func checkAPI(t *Tree) ([]Violation, error) {
	allowed := []string{"k8s.io/apimachinery", "k8s.io/api"}
	var out []Violation
	t.eachImport(func(dir string) bool { return under(dir, dirAPI) }, func(f *File, imp Import) {
		if standard(imp.Path) || under(imp.Local, dirAPI) || underAny(imp.Path, allowed) {
			return
		}
		out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s", f.Dir, imp.Path)})
	})
	return out, nil
}

// standard reports whether an import path is of the standard library: its first element has no dot. (Muster's own module has one.)
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// checkHeavy is D6. Tests count: a test that needs a real server uses the lab.
func checkHeavy(t *Tree) ([]Violation, error) {
	kubernetes := []string{dirLab, dirFilters, "cmd/muster-lab"}
	libvirt := []string{dirVM, "cmd/muster-vm"}
	var out []Violation
	for _, f := range t.Files {
		for _, imp := range f.Imports {
			if under(imp.Path, "k8s.io/kubernetes") && !underAny(f.Dir, kubernetes) {
				out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s", f.Dir, imp.Path)})
			}
			if imp.Local == "" && strings.Contains(imp.Path, "libvirt") && !underAny(f.Dir, libvirt) {
				out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s", f.Dir, imp.Path)})
			}
		}
	}
	return out, nil
}

// checkControllers is D7.
func checkControllers(t *Tree) ([]Violation, error) {
	owner := func(dir string) string {
		rest, ok := strings.CutPrefix(dir, dirControllers+"/")
		if !ok {
			return ""
		}
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	var out []Violation
	t.eachImport(func(dir string) bool { return owner(dir) != "" }, func(f *File, imp Import) {
		if to := owner(imp.Local); to != "" && to != owner(f.Dir) {
			out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("controller %s imports controller %s", owner(f.Dir), to)})
		}
	})
	return out, nil
}

// checkCgo is D11.
func checkCgo(t *Tree) ([]Violation, error) {
	allowed := []string{"cmd/muster-node", "cmd/muster-vm", dirVM}
	var out []Violation
	for _, f := range t.Files {
		for _, imp := range f.Imports {
			if imp.Path == "C" && !underAny(f.Dir, allowed) {
				out = append(out, Violation{Where: t.Pos(imp.Pos), What: f.Dir + ` imports "C"`})
			}
		}
	}
	return out, nil
}

// checkLayers keeps the picture of the architecture for the packages that D2 to D7 do not bind: each row lists all that a
// directory may import from this module.
func checkLayers(t *Tree) ([]Violation, error) {
	rows := []struct {
		dir string
		may []string
	}{
		{dirCluster, []string{dirCluster}},
		{dirFairshare, []string{dirFairshare, dirCluster}},
		{dirDialect, []string{dirDialect, dirCluster, dirEntry, dirAPI}},
		{dirKube, []string{dirKube, dirDialect, dirEngine, dirFairshare, dirCluster, dirEntry, dirAPI, dirApp}},
		{dirEntry, []string{dirEntry}},
		{dirSpelling, []string{dirSpelling}},
		{dirApp, []string{dirApp, dirAPI, dirSpelling}},
		{dirEngineTest, []string{dirEngine, dirFairshare, dirCluster, dirDialect, dirAPI, dirProfile}},
		{dirUsage, []string{dirUsage, dirCluster}},
		{dirProfile, []string{dirProfile, dirEngine, dirUsage, dirCluster, dirAPI, dirSpelling}},
		{dirVM, []string{dirVM, dirApp}},
		// What forecasts are proven on must be out of their reach: it is in internal/trial, and so is nothing that they may import.
		{dirSee, []string{dirSee, dirExplain, dirSim, dirReplay, dirEngine, dirFairshare, dirCluster}},
		{dirExplain, []string{dirExplain, dirEngine, dirCluster, dirSpelling}},
		{dirClimb + "/genome", []string{dirClimb + "/genome"}}, // programs of other trees have it too
		{dirClimb, []string{dirClimb, dirFilters, dirProfile, dirEngine, dirCluster}},
		{dirSim, []string{dirSim, dirProfile, dirEngine, dirFairshare, dirUsage, dirCluster}},
		{dirReplay, []string{dirReplay, dirDialect, dirKube, dirProfile, dirEngine, dirFairshare, dirCluster, dirEntry, dirAPI}},
	}
	var out []Violation
	for _, row := range rows {
		t.eachImport(func(dir string) bool { return under(dir, row.dir) }, func(f *File, imp Import) {
			if imp.Local != "" && !underAny(imp.Local, row.may) {
				out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s, which is not below it", f.Dir, imp.Local)})
			}
		})
	}
	// The parts of the VM runtime share the nouns of package vm; they meet only where somebody is responsible for all of them. What
	// turns a pod's description into XML and files knows the description; volumes are made in the words of those who are given them.
	parts := map[string][]string{
		"proxy": {dirVM + "/socket", dirVM + "/metrics"}, "image": nil, "spec": nil, "network": {dirVM + "/socket", dirVM + "/metrics"}, "socket": nil, "hypervisor": nil, "wrap": nil, "store": nil, "console": nil, "config": nil, "diag": {dirVM + "/socket"}, "validate": nil, "ctl": nil, "suspend": nil, "metrics": nil,
		"domain": {dirVM + "/spec"}, "cloudinit": {dirVM + "/spec"}, "flexvolume": nil, "volume": {dirVM + "/spec", dirVM + "/domain", dirVM + "/cloudinit", dirVM + "/flexvolume"},
	}
	t.eachImport(func(dir string) bool { return under(dir, dirVM) && dir != dirVM }, func(f *File, imp Import) {
		part, _, _ := strings.Cut(strings.TrimPrefix(f.Dir, dirVM+"/"), "/")
		may, ok := parts[part]
		if !ok || !under(imp.Local, dirVM) || imp.Local == dirVM || underAny(imp.Local, append(may, dirVM+"/"+part)) {
			return
		}
		out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s; parts of the VM runtime do not know each other", f.Dir, imp.Local)})
	})
	return out, nil
}
