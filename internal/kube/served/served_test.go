package served

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// server is a Discovery that says what it is told.
type server struct {
	mu      sync.Mutex // of the rest
	info    version.Info
	without []string // groups with their versions, or kinds
	err     error
}

func (s *server) ServerVersion() (*version.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := s.info
	return &info, s.err
}

func (s *server) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.without, gv) {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	list := &metav1.APIResourceList{GroupVersion: gv}
	for _, n := range Needs() {
		for _, gvk := range n.Kinds {
			if gvk.GroupVersion().String() == gv && !slices.Contains(s.without, gvk.Kind) {
				list.APIResources = append(list.APIResources, metav1.APIResource{Kind: gvk.Kind}, metav1.APIResource{Kind: gvk.Kind, Name: "status"})
			}
		}
	}
	return list, s.err
}

// becomes changes what the server says from now on.
func (s *server) becomes(minor string, without ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info, s.without = kubernetes(minor), without
}

// fails has the server answer so from now on; nil: it answers.
func (s *server) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func kubernetes(minor string) version.Info {
	return version.Info{Major: "1", Minor: minor, GitVersion: "v1." + strings.TrimRight(minor, "+") + ".0"}
}

func names(needs []Need) (out []Name) {
	for _, n := range needs {
		out = append(out, n.Name)
	}
	return out
}

// everybody are all roles that need something.
func everybody() []string { return []string{"scheduler", "binder", "podgroup", "operator"} }

// TestLook: what an API server lacks follows from the kinds that it serves and from the version that it behaves like.
func TestLook(t *testing.T) {
	t.Parallel()
	gates := []Name{
		ExtendedByClaim, "DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints", "DRADeviceBindingConditions",
		"DRAResourceClaimGranularStatusAuthorization",
	}
	emulated := kubernetes("36")
	emulated.EmulationMajor, emulated.EmulationMinor = "1", "34"
	for name, c := range map[string]struct {
		info    version.Info
		without []string
		roles   []string
		uses    func(string) bool
		want    []Name
	}{
		"1.34":                     {kubernetes("34"), nil, everybody(), nil, gates},
		"1.35 of a cloud":          {kubernetes("35+"), nil, everybody(), nil, gates},
		"1.36":                     {kubernetes("36"), nil, everybody(), nil, nil},
		"1.37":                     {kubernetes("37"), nil, everybody(), nil, nil},
		"a later one":              {kubernetes("38"), nil, everybody(), nil, nil},
		"1.36 that emulates 1.34":  {emulated, nil, everybody(), nil, gates},
		"no version at all":        {version.Info{GitVersion: "dev"}, nil, everybody(), nil, nil},
		"a version of another":     {version.Info{Major: "2", Minor: "1"}, nil, everybody(), nil, nil},
		"one role":                 {kubernetes("35"), nil, []string{"binder"}, nil, []Name{ExtendedByClaim, "DRADeviceBindingConditions", "DRAResourceClaimGranularStatusAuthorization"}},
		"a role without needs":     {kubernetes("34"), []string{"resource.k8s.io/v1"}, []string{"queue"}, nil, nil},
		"no claims":                {kubernetes("34"), []string{"resource.k8s.io/v1"}, everybody(), nil, []Name{ResourceClaims}},
		"a part of the claims":     {kubernetes("36"), []string{"ResourceSlice"}, everybody(), nil, []Name{ResourceClaims}},
		"no policies":              {kubernetes("36"), []string{"ValidatingAdmissionPolicy"}, everybody(), nil, []Name{"validatingadmissionpolicies.admissionregistration.k8s.io"}},
		"no topologies":            {kubernetes("36"), []string{"kai.scheduler/v1alpha1"}, everybody(), nil, []Name{"topologies.kai.scheduler"}},
		"no zones, but wanted":     {kubernetes("36"), []string{"topology.node.k8s.io/v1alpha2"}, everybody(), func(p string) bool { return p == "numa" }, []Name{"noderesourcetopologies.topology.node.k8s.io"}},
		"no zones, and not wanted": {kubernetes("36"), []string{"topology.node.k8s.io/v1alpha2"}, everybody(), func(string) bool { return false }, nil},
	} {
		s, err := Look(&server{info: c.info, without: c.without})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, names(s.Lacking(c.roles, c.uses))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if s, err := Look(&server{info: emulated}); err != nil || s.String() != "v1.36.0, which behaves like 1.34" {
		t.Errorf("%q, %v", s.String(), err)
	}
	if s, err := Look(&server{info: kubernetes("35")}); err != nil || s.String() != "v1.35.0" {
		t.Errorf("%q, %v", s.String(), err)
	}
	if _, err := Look(&server{info: kubernetes("36"), err: errors.New("no")}); err == nil {
		t.Error("a server that does not tell is an error")
	}
}

// TestNeeds: the table makes sense by itself.
func TestNeeds(t *testing.T) {
	t.Parallel()
	seen := map[Name]bool{}
	for _, n := range Needs() {
		if n.Name == "" || n.Lost == "" || len(n.Roles) == 0 || seen[n.Name] {
			t.Errorf("%+v: a need has a name of its own, somebody who has it, and says what is lost", n)
		}
		if n.Gate() && n.Since == 0 {
			t.Errorf("%s: nothing would ever tell whether a server has it", n.Name)
		}
		if n.Since > Newest {
			t.Errorf("%s: comes with %s, which is newer than the table", n.Name, Minor(n.Since))
		}
		seen[n.Name] = true
	}
	for minor, want := range map[int]int{33: 7, 34: 6, 35: 6, 36: 0, 37: 0} {
		if got := LackingSince(minor); len(got) != want {
			t.Errorf("%s lacks %v", Minor(minor), names(got))
		}
	}
}

// said is a log that is read line by line.
func said(t *testing.T) (context.Context, func() []string) {
	t.Helper()
	var lines []string
	log := funcr.New(func(_, args string) {
		lines = append(lines, args)
	}, funcr.Options{})
	return logr.NewContext(t.Context(), log), func() []string {
		out := lines
		lines = nil
		return out
	}
}

// TestWatcher: a process says once what is lacking, again when that has changed, and nothing in between.
func TestWatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, lines := said(t)
		s := &server{err: errors.New("not yet")}
		w := NewWatcher(s, []string{"scheduler", "podgroup"}, func(string) bool { return false })
		expect := func(want ...string) {
			t.Helper()
			got := lines()
			if len(got) != len(want) {
				t.Fatalf("said %q, want %q", got, want)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					t.Errorf("said %q, want %q", got[i], want[i])
				}
			}
		}
		w.First(ctx)
		expect(`"error"="ask the API server for its version: not yet"`)
		if !w.Has(ResourceClaims) || !w.Has(ExtendedByClaim) {
			t.Error("before the server tells, all is taken to be there")
		}
		ended := make(chan error, 1)
		ctx, end := context.WithCancel(ctx)
		go func() { ended <- w.Run(ctx) }()
		after := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		s.fails(nil)
		s.becomes("34", "resource.k8s.io/v1")
		after(again)
		expect(`"kubernetes"="v1.34.0"`, `"lacking"="resourceclaims.resource.k8s.io" "effect"="nobody can ask`)
		if w.Has(ResourceClaims) || w.Has(ExtendedByClaim) {
			t.Error("what is lacking is said to be there")
		}
		after(10 * again)
		expect()
		s.fails(errors.New("away"))
		after(10 * again)
		expect()
		if w.Has(ResourceClaims) {
			t.Error("what was lacking is there because the server does not answer")
		}
		s.fails(nil)
		s.becomes("35")
		after(again)
		expect(`"kubernetes"="v1.35.0"`, `"found"="resourceclaims.resource.k8s.io"`, `"lacking"="DRAExtendedResource"`, `"lacking"="DRAPartitionableDevices"`,
			`"lacking"="DRAConsumableCapacity"`, `"lacking"="DRADeviceTaints"`, `"lacking"="DRADeviceBindingConditions"`)
		s.becomes("36")
		after(again)
		if !w.Has(ExtendedByClaim) {
			t.Error("an upgrade is not noticed")
		}
		if got := lines(); len(got) != 6 {
			t.Errorf("said %q", got)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAwait: it is tried every half minute until it succeeds, and no more.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		Await(t.Context(), func() error {
			if tries++; tries < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); tries != 3 || took != 3*absentRetry {
			t.Errorf("%d tries in %s", tries, took)
		}
		ctx, end := context.WithCancel(t.Context())
		end()
		Await(ctx, func() error { t.Error("tried after the end"); return nil })
	})
}
