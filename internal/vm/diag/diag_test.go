package diag

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

func says(name, text string) Source {
	return Source{Name: name, Ext: "txt", Read: func(_ context.Context, to io.Writer) error {
		_, err := io.WriteString(to, text)
		return err
	}}
}

func find(t *testing.T, r Result, names ...string) Result {
	t.Helper()
	for _, name := range names {
		found := false
		for _, c := range r.Children {
			if c.Name == name {
				r, found = c, true
				break
			}
		}
		if !found {
			t.Fatalf("there is no %v", names)
		}
	}
	return r
}

// TestNoneHindersAnother: sources that fail, panic, stand still, heed nothing and write without end have their error in their place, in the time of one.
func TestNoneHindersAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		began := time.Now()
		got := Collect(t.Context(), []Source{
			says("good", "whole\n"),
			{Name: "fails", Read: func(_ context.Context, to io.Writer) error { fmt.Fprintln(to, "half"); return errors.New("no more") }},
			{Name: "panics", Read: func(context.Context, io.Writer) error { panic("oh") }},
			{Name: "stands", Read: func(ctx context.Context, to io.Writer) error {
				fmt.Fprintln(to, "so far")
				<-ctx.Done()
				return ctx.Err()
			}},
			{Name: "heedless", Read: func(context.Context, io.Writer) error { <-release; return nil }},
			{Name: "endless", Read: func(ctx context.Context, to io.Writer) error {
				for ctx.Err() == nil {
					if _, err := io.WriteString(to, "more and more\n"); err != nil {
						return nil
					}
				}
				return ctx.Err()
			}},
			{Name: "folder", List: func(context.Context) ([]Source, error) {
				return []Source{says("b", "2"), says("a", "1"), says("a", "twice"), says("../../x y", "named")}, errors.New("one is missing")
			}},
			{Name: "nothing"},
			{Name: "given", Tree: func(context.Context) (Result, error) {
				return Result{Name: "other", IsDir: true, Children: []Result{{Name: "/etc/passwd", Ext: "../x", Data: "token=abc"}}}, nil
			}},
		}, Bounds{Bytes: 1000, Time: time.Second})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, want := range []struct{ at, data, problem string }{
			{"good", "whole\n", ""},
			{"fails", "half\n", "no more"},
			{"panics", "", "a defect: oh"},
			{"stands", "", "no end within 1s"},
			{"heedless", "", "no end within 1s"},
			{"endless", strings.Repeat("more and more\n", 71), "cut: "},
			{"folder", "", "one is missing"},
			{"nothing", "", "nothing to look at"},
			{"folder/a", "1", ""},
			{"folder/a-2", "twice", ""},
			{"folder/b", "2", ""},
			{"folder/_.._.._x_y", "named", ""},
			{"given/_etc_passwd", `token="` + Redacted + `"`, ""},
		} {
			r := find(t, got, strings.Split(want.at, "/")...)
			if r.Data != want.data && !(want.at == "stands" && r.Data == "so far\n") || (want.problem == "") != (r.Error == "") || want.problem != "" && strings.Count(r.Error, want.problem) != 1 {
				t.Errorf("%s: %q, %q", want.at, r.Data, r.Error)
			}
		}
	})
}

// TestBounds: folders, their depth and all texts together are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	var endless func(context.Context) ([]Source, error)
	endless = func(context.Context) ([]Source, error) { return []Source{{Name: "in", List: endless}}, nil }
	var many []Source
	for i := range 10 {
		many = append(many, says(fmt.Sprint(i), strings.Repeat("x", 99)+"\n"))
	}
	got := Collect(t.Context(), []Source{{Name: "deep", List: endless}, {Name: "many", List: func(context.Context) ([]Source, error) { return many, nil }}}, Bounds{Children: 5, Total: 250, AtOnce: 1})
	if r := find(t, got, "many"); len(r.Children) != 5 || !strings.Contains(r.Error, "5 of 10 are left out") {
		t.Errorf("%d, %s", len(r.Children), r.Error)
	}
	text, err := json.Marshal(got)
	if err != nil || strings.Count(string(text), "x") > 250 || !strings.Contains(string(text), "at most 6 deep") || !strings.Contains(string(text), "cut: ") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestRedact: whatever has a secret's name or form is taken out, and the rest stays.
func TestRedact(t *testing.T) {
	t.Parallel()
	const canary = "hunter2Canary0123456789abcdef"
	for _, text := range []string{
		"PASSWORD=%s", "export DB_PASSWD='%s x'", `{"password": "%s"}`, `{"a": {"apiToken":"%s"}, "b": 1}`, "secret: %s", `<graphics passwd='%s'/>`,
		`<qemu:env name="VIRTLET_NET_KEY" value="3f1c:%s@/run/net.sock"/>`, `<qemu:env name='MY_SECRET' value='%s'/>`, "key 3f1c:%s@/run/net.sock", "https://user:%s@host/x",
		"Authorization: Bearer %s", "authorization=%s", "curl -H 'X: bearer %s'", "prog --db-password %s --x", "prog --token=%s", "-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN PRIVATE KEY-----\nabc\n%s", "%s\nabc\n-----END EC PRIVATE KEY-----\nrest", "eyJhbGciOiJSUzI1NiJ9.%s.c2ln", `"{\"password\":\"%s\"}"`, `{"user-data": "#cloud-config\nx: %s"}`,
		"password=\"%s", "a=1&token=%s&b=2",
	} {
		if got := Redact("before\n" + fmt.Sprintf(text, canary) + "\nafter"); strings.Contains(got, canary) || !strings.Contains(got, Redacted) {
			t.Errorf("%s: %s", text, got)
		} else if again := Redact(got); strings.Contains(again, canary) || len(again) > len(got)+len(Redacted) {
			t.Errorf("%s: %s, and again: %s", text, got, again)
		}
	}
	for _, text := range []string{
		"2: eth0: <BROADCAST,MULTICAST,UP> mtu 1500", "default via 10.0.0.1 dev eth0", "root 1 0.0 /sbin/init splash", `{"phase":"running","image":"host:5000/a@sha256:00"}`,
		"goroutine 1 [running]:\nmain.main()\n\t/x/main.go:3 +0x1d", `<domain type="kvm"><name>muster-1</name></domain>`, "http://host:80/path@x",
	} {
		if got := Redact(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	// It stays JSON.
	var v any
	if err := json.Unmarshal([]byte(Redact(`{"secretRef":{"name":"x"},"token":"y","tokens":["a"],"list":[{"password":null}]}`)), &v); err != nil {
		t.Error(err, Redact(`{"secretRef":{"name":"x"},"token":"y","tokens":["a"],"list":[{"password":null}]}`))
	}
}

// FuzzRedact: a secret behind its name never stays, whatever stands around it.
func FuzzRedact(f *testing.F) {
	f.Add("a", "b")
	f.Add("x='", "\n-----BEGIN PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, before, after string) {
		const canary = "hunter2Canary"
		if strings.Contains(before+after, canary) || len(before)+len(after) > 10000 {
			return
		}
		if got := Redact(before + "\nDB_PASSWORD=" + canary + "\n" + after); strings.Contains(got, canary) {
			t.Errorf("%q, %q: %q", before, after, got)
		}
	})
}

// TestUnpack: a tree becomes files and folders, and none outside.
func TestUnpack(t *testing.T) {
	t.Parallel()
	tree := Collect(t.Context(), []Source{
		says("ip-a", "1: lo\n"),
		{Name: "broken", Read: func(context.Context, io.Writer) error { return errors.New("why") }},
		{Name: "netns", List: func(context.Context) ([]Source, error) { return []Source{says("p1", "x")}, nil }},
	}, Bounds{})
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := Unpack(again, dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"ip-a.txt": "1: lo\n", "broken.error": "why\n", "netns/p1.txt": "x"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if err := Unpack(again, dir); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "must be empty") {
		t.Error(err)
	}
	for _, bad := range []Result{
		{Name: "..", Data: "x"},
		{Name: "a/b", Data: "x"},
		{Name: "a", Ext: "x/../../y", Data: "x"},
		{Name: "", Data: "x"},
		{Name: ".bashrc"},
		{Name: "d", IsDir: true, Children: []Result{{Name: "../x"}}},
		{Name: "twice", IsDir: true, Children: []Result{{Name: "a", Data: "1"}, {Name: "a", Data: "2"}}},
	} {
		if err := Unpack(Result{Name: Root, IsDir: true, Children: []Result{bad}}, filepath.Join(t.TempDir(), "o")); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	deep := Result{Name: "x", IsDir: true}
	for range 50 {
		deep = Result{Name: "x", IsDir: true, Children: []Result{deep}}
	}
	if err := Unpack(deep, filepath.Join(t.TempDir(), "o")); vm.KindOf(err) != vm.Invalid {
		t.Error(err)
	}
	for _, text := range []string{"", "{", `{"name":"x"}`, "[]"} {
		if _, err := Read(strings.NewReader(text)); vm.KindOf(err) != vm.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestServe: a process tells of itself at its socket, and takes away what is nobody's if it is told to.
func TestServe(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "diag") // short: it is a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s", "d.sock")
	c := Client{Socket: socket}
	if _, err := c.Dump(t.Context()); vm.KindOf(err) != vm.Unavailable {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, socket, Service{Sources: []Source{Stack(), says("token", "token=x1234")}, GC: func(_ context.Context, dry bool) ([]Garbage, error) {
			return []Garbage{{Kind: "machine", ID: fmt.Sprint(dry)}}, errors.New("libvirt is away")
		}}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	got, err := c.Dump(t.Context())
	if err != nil || !strings.Contains(find(t, got, "stack").Data, "goroutine ") || strings.Contains(find(t, got, "token").Data, "x1234") {
		t.Errorf("%+v, %v", got, err)
	}
	for _, dry := range []bool{true, false} {
		found, err := c.GC(t.Context(), dry)
		if len(found) != 1 || found[0].ID != fmt.Sprint(dry) || err == nil || err.Error() != "libvirt is away" {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if err := (Client{Socket: socket}).call(t.Context(), "POST", "/gc?dry=perhaps", new(any)); err == nil || !strings.Contains(err.Error(), "dry must be") {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), filepath.Join(dir, "file"), Service{}, nil); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Error(err)
	}
}
