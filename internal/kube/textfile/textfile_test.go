package textfile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestFile: what is in a file is told within two looks of a change, and once; one that goes is told too; a text that is half written counts for nothing.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "conf")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var mu sync.Mutex
		var told []string
		ended := make(chan error, 1)
		go func() {
			ended <- File(ctx, path, 8, func(f Found) {
				text := string(f.Text)
				if f.Why != "" {
					text = "none"
				}
				mu.Lock()
				defer mu.Unlock()
				told = append(told, text)
			})
		}()
		step := func(want string) {
			t.Helper()
			synctest.Wait()
			<-time.After(2 * Every)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, " "); got != want {
				t.Errorf("told %q, want %q", got, want)
			}
			told = nil
		}
		step("one")
		step("")
		put("tw")
		<-time.After(Every)
		synctest.Wait()
		put("two")
		step("two")
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		step("none")
		put("0123456789")
		step("012345678")
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestConfigMap: a text of a ConfigMap is told as it is and as it changes, what else changes is not, and why there is none is.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
		ref, err := ParseRef("v/c")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var told []string
		tell := func(f Found) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, string(f.Text)+f.Why)
		}
		run(t, s.Process("one"), ref, tell)
		step := func(want string, o *corev1.ConfigMap) {
			t.Helper()
			if o != nil {
				s.Put(o)
			}
			<-time.After(time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, ";"); got != want {
				t.Errorf("told %q, want %q", got, want)
			}
			told = nil
		}
		step("there is no ConfigMap v/c", nil)
		step("", configMap("other", "k", "x"))
		step("one", configMap("c", "k", "one"))
		noted := configMap("c", "k", "one")
		noted.Labels = map[string]string{"a": "b"}
		step("", noted)
		step("two", configMap("c", "k", "two"))
		step("ConfigMap v/c has 2 keys; of one that has not one the key must be named", configMap("c", "k", "two", "l", "three"))
		step("two", configMap("c", "k", "two"))
		s.Remove(configMap("c"))
		step("ConfigMap v/c is gone", nil)

		keyed := ref
		keyed.Key = "k"
		step("three", configMap("c", "l", "three"))
		run(t, s.Process("two"), keyed, tell)
		step(`ConfigMap v/c has no key "k"; it has ["l"]`, nil)
	})
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "v", Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		m.Data[data[i]] = data[i+1]
	}
	return m
}

// run follows in a process of its own until the test ends.
func run(t *testing.T, p *kubetest.Process, ref Ref, told func(Found)) {
	objects, err := p.Cache(ref.Cache())
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- objects.Start(ctx) }()
	go func() { ended <- ConfigMap(ctx, objects, ref, told) }()
	t.Cleanup(func() {
		end()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestParseRef: a ConfigMap is named by its namespace and its name, and by a key.
func TestParseRef(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a/b": "a/b ", "volcano-system/integration-scheduler-configmap:volcano-scheduler-ci.conf": "volcano-system/integration-scheduler-configmap volcano-scheduler-ci.conf",
		"": "-", "a": "-", "a/": "-", "/b": "-", "a/b:": "-", "a/b/c": "-", "A/b": "-", "a/b:x/y": "-", "a/b:x:y": "-",
	} {
		ref, err := ParseRef(text)
		got := ref.String() + " " + ref.Key
		if err != nil {
			got = "-"
		}
		if got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}
