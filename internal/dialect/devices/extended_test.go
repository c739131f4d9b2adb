package devices

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// asks is a container that requests n of x.example/gpu.
func asks(name string, n int64) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "x.example/gpu": *resource.NewQuantity(n, resource.DecimalSI)}}}
}

func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

// TestExtendedShares: containers that never run together have the same devices, as KEP-5004 has it; those that do have
// devices of their own. Each is told all the requests that it uses.
func TestExtendedShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inits, mains []v1.Container
		requests     string   // name=count
		users        []string // container=request
	}{
		"one after the other": {
			[]v1.Container{asks("a", 8)},
			[]v1.Container{asks("main", 8)},
			"container-1-request-0=8",
			[]string{"main=container-1-request-0", "a=container-1-request-0"},
		},
		"an init container that needs more": {
			[]v1.Container{asks("a", 8)},
			[]v1.Container{asks("m", 2), asks("n", 3)},
			"container-1-request-0=2 container-2-request-0=3 container-0-request-0=3",
			[]string{"m=container-1-request-0", "a=container-1-request-0", "n=container-2-request-0", "a=container-2-request-0", "a=container-0-request-0"},
		},
		"init containers in turn": {
			[]v1.Container{asks("a", 3), asks("b", 4), asks("c", 1)},
			[]v1.Container{asks("m", 1)},
			"container-3-request-0=1 container-1-request-0=3",
			[]string{"m=container-3-request-0", "a=container-3-request-0", "b=container-3-request-0", "c=container-3-request-0", "a=container-1-request-0", "b=container-1-request-0"},
		},
		"a sidecar runs beside who starts later": {
			[]v1.Container{asks("a", 2), sidecar(asks("s", 2)), asks("b", 2)},
			[]v1.Container{asks("m", 1)},
			"container-1-request-0=2 container-3-request-0=1 container-2-request-0=1",
			[]string{"s=container-1-request-0", "a=container-1-request-0", "m=container-3-request-0", "b=container-3-request-0", "b=container-2-request-0"},
		},
		"init containers alone": {
			[]v1.Container{asks("a", 2), asks("none", 0)},
			[]v1.Container{{Name: "m"}},
			"container-0-request-0=2",
			[]string{"a=container-0-request-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := user()
			p.Spec.InitContainers, p.Spec.Containers = c.inits, c.mains
			got := ""
			var made []resourceapi.DeviceRequest
			for i, r := range parts(p) {
				if i > 0 {
					got += " "
				}
				got += fmt.Sprintf("%s=%d", r.name(), r.count)
				made = append(made, resourceapi.DeviceRequest{Name: r.name()})
			}
			if got != c.requests {
				t.Errorf("requests %s, want %s", got, c.requests)
			}
			var users []string
			for _, u := range Containers(p, made) {
				if u.ResourceName != "x.example/gpu" {
					t.Errorf("%+v", u)
				}
				users = append(users, u.ContainerName+"="+u.RequestName)
			}
			if diff := cmp.Diff(c.users, users); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestExtendedSum: a pod's requests for devices are as many as it requests of a node by upstream's rule, each container can use
// at least as many as it asks for, and containers that run at the same time use none together.
func TestExtendedSum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := user()
		for i := range r.IntN(4) {
			c := asks(fmt.Sprint("init", i), r.Int64N(4))
			if r.IntN(3) == 0 {
				c = sidecar(c)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		for i := range 1 + r.IntN(3) {
			p.Spec.Containers = append(p.Spec.Containers, asks(fmt.Sprint("main", i), r.Int64N(4)))
		}
		sum, can, names := int64(0), map[string]int64{}, map[string]bool{}
		for _, x := range parts(p) {
			if x.count <= 0 || names[x.name()] {
				t.Fatalf("seed %d: %+v", seed, x)
			}
			names[x.name()] = true
			sum += x.count
			lasting := 0
			for _, name := range x.users {
				can[name] += x.count
				for i := range p.Spec.InitContainers {
					if c := &p.Spec.InitContainers[i]; c.Name == name && c.RestartPolicy != nil {
						lasting++
					}
				}
				if name[:4] == "main" {
					lasting++
				}
			}
			if lasting > 1 {
				t.Fatalf("seed %d: containers that run together share %+v", seed, x)
			}
		}
		want := podresource.PodRequests(p, podresource.PodResourcesOptions{})["x.example/gpu"]
		if sum != want.Value() {
			t.Fatalf("seed %d: %d devices, want %d", seed, sum, want.Value())
		}
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if q := list[i].Resources.Requests["x.example/gpu"]; can[list[i].Name] < q.Value() {
					t.Fatalf("seed %d: container %s has %d devices and asks for %d", seed, list[i].Name, can[list[i].Name], q.Value())
				}
			}
		}
	}
}

// TestExtendedNeed: the claim that the binder will make for init and main container asks for the devices once.
func TestExtendedNeed(t *testing.T) {
	t.Parallel()
	b := NewIndex("queue")
	class := &resourceapi.DeviceClass{}
	class.Name, class.Spec.ExtendedResourceName = "gpu", new("x.example/gpu")
	b.Class("gpu", class)
	p := user()
	p.Spec.InitContainers, p.Spec.Containers = []v1.Container{asks("a", 8)}, []v1.Container{asks("m", 8)}
	st := b.needs(p)
	const want = `{"devices":{"requests":[{"name":"container-1-request-0","exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":8}}]}}`
	if len(st.Spec.Devices) != 1 || st.Spec.Devices[0].Spec != want || !cmp.Equal(st.Spec.Devices[0].Resources, []string{"x.example/gpu"}) {
		t.Errorf("%+v", st.Spec.Devices)
	}
}
