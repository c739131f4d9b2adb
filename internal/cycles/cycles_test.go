package cycles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// doorman knows the tokens "reader", who may, and "tenant", who may not.
type doorman struct{}

func (doorman) Caller(r *http.Request) (authenticationv1.UserInfo, error) {
	name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name != "reader" && name != "tenant" {
		return authenticationv1.UserInfo{}, review.ErrWho
	}
	return authenticationv1.UserInfo{Username: name}, nil
}

func (doorman) Path(_ context.Context, user authenticationv1.UserInfo, verb, path string) error {
	if user.Username != "reader" || verb+path != "get/cycle" && verb+path != "post/outlook" {
		return fmt.Errorf("%w: %s may not %s on the path %s", review.ErrMayNot, user.Username, verb, path)
	}
	return nil
}

// served starts a server of a stream.
func served(t *testing.T, s *replay.Stream, told ...func([]byte) error) (place Place, stop func()) {
	t.Helper()
	server, err := NewServer(s, doorman{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range told {
		server.Told = f
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return Place{"https://" + l.Addr().String(), server.Fingerprint()}, stop
}

// deciding is a scheduler that lives in memory: each call is a cycle.
func deciding(t *testing.T, s *replay.Stream) (decide func() *replay.Case) {
	t.Helper()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	store, n := cluster.NewStore(cluster.Options{}), int64(0)
	store.Apply(
		cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 64000}, {Name: "pods", Value: 110}}},
		cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: -1}}},
	)
	driver := engine.NewDriver(e, store)
	return func() *replay.Case {
		n++
		key := cluster.Key{Face: "kai", Namespace: "team", Name: fmt.Sprint("g", n)}
		store.Apply(
			cluster.GangState{Key: key, UID: key.Name, Queue: "q", Sets: cluster.FlatTree(1)},
			cluster.PodState{UID: key.Name, Namespace: "team", Name: key.Name, Gang: key, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}}},
		)
		snap, plans, _ := driver.Cycle(t.Context(), cluster.UnixNano(n))
		s.Decided(snap, plans)
		return &replay.Case{Version: "v", Profile: profile.BuiltIn(), Image: snap.Image(), Decided: true, Plans: plans}
	}
}

func text(t *testing.T, c *replay.Case) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := replay.Write(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestClientFollows: a client has each cycle as the scheduler had it, through a connection that breaks and a leader that changes; to decide on it again comes to the
// same plans.
func TestClientFollows(t *testing.T) {
	t.Parallel()
	s := replay.NewStream("v", profile.BuiltIn(), false)
	decide := deciding(t, s)
	place, stop := served(t, s)
	came, places := make(chan replay.EntryKind, 100), make(chan Place, 1)
	c := &Client{
		Find: func(ctx context.Context) (Place, error) {
			select {
			case p := <-places:
				return p, nil
			case <-ctx.Done():
				return Place{}, ctx.Err()
			}
		},
		Token:   func() (string, error) { return "reader", nil },
		Changed: func(k replay.EntryKind) { came <- k },
		Pause:   1,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	check := func(kind replay.EntryKind, own *replay.Case) {
		t.Helper()
		got := <-came
		for got == replay.Still {
			got = <-came
		}
		has, _, _, _, err := c.Latest()
		if got != kind || err != nil || has == nil || !bytes.Equal(text(t, own), text(t, has)) {
			t.Fatalf("a %s, want a %s: %v", got, kind, err)
		}
		if out, err := has.Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
			t.Fatalf("it decides otherwise: %v", err)
		}
	}
	first := decide()
	places <- place
	check(replay.Keyframe, first)
	for range 20 {
		check(replay.Change, decide())
	}
	stop()
	next, _ := served(t, s)
	last := decide()
	places <- next
	check(replay.Keyframe, last)
	check(replay.Change, decide())
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOtherVersions: a role of this version has the cycles of a scheduler of the one before as that had them: recorded are a keyframe, what differed in the cycles after it, and the keyframe of the last of them.
// The stream of a version to come is refused by the name of its format, and what was there before holds.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile(filepath.Join("testdata", "scheduler.v1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(bytes.Lines(recorded))
	last := lines[len(lines)-1]
	tell := lines[:len(lines)-1]
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range tell {
			_, _ = w.Write(line) // a client that has hung up has said why
		}
	}))
	defer server.Close()
	kinds := map[replay.EntryKind]int{}
	c := &Client{
		Find: func(context.Context) (Place, error) {
			return Place{server.URL, Fingerprint(server.Certificate().Raw)}, nil
		},
		Token:   func() (string, error) { return "reader", nil },
		Changed: func(k replay.EntryKind) { kinds[k]++ },
	}
	if err := c.once(t.Context()); err == nil || !strings.Contains(err.Error(), "has ended the stream") || kinds[replay.Keyframe] != 1 || kinds[replay.Change] != len(tell)-1 {
		t.Fatalf("%v; entries %v of %d", err, kinds, len(tell))
	}
	var whole replay.Follower
	if _, err := whole.Take(last); err != nil {
		t.Fatal(err)
	}
	want, cycle := text(t, whole.Case()), uint64(len(tell))
	is := func(when string) {
		t.Helper()
		if has, number, _, _, _ := c.Latest(); number != cycle || has == nil || !bytes.Equal(text(t, has), want) {
			t.Errorf("%s: cycle %d is not as the scheduler had it", when, number)
		}
	}
	is("of the version before")
	tell = [][]byte{bytes.Replace(last, []byte("muster.cycles/v1"), []byte("muster.cycles/v3"), 1)}
	var refused *replay.FormatError
	if err := c.once(t.Context()); !errors.As(err, &refused) || refused.Format != "muster.cycles/v3" || !strings.Contains(err.Error(), `"muster.cycles/v3"; this version of muster reads "muster.cycles/v2"`) {
		t.Errorf("a version to come: %v", err)
	}
	is("after a version to come")
}

// TestWhoMayFollow: without a token, with one that is nobody's, without the right, and with a certificate that is another's nothing is told; nor by plain HTTP, nor
// at another path; who finds no room is told when to come again.
func TestWhoMayFollow(t *testing.T) {
	t.Parallel()
	s := replay.NewStream("v", profile.BuiltIn(), false)
	decide := deciding(t, s)
	decide()
	place, _ := served(t, s)
	for token, want := range map[string]string{"": "401", "foe": "401", "tenant": "403 Forbidden: the right is missing: tenant may not get on the path /cycle"} {
		c := &Client{Find: func(context.Context) (Place, error) { return place, nil }, Token: func() (string, error) { return token, nil }}
		if err := c.once(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("token %q: %v", token, err)
		}
		if now, _, _, _, _ := c.Latest(); now != nil {
			t.Errorf("token %q is told something", token)
		}
	}
	reader := func() (string, error) { return "reader", nil }
	c := &Client{Find: func(context.Context) (Place, error) { return Place{place.URL, strings.Repeat("0", 64)}, nil }, Token: reader}
	if err := c.once(t.Context()); err == nil || !strings.Contains(err.Error(), "not the one that was named") {
		t.Errorf("another certificate: %v", err)
	}
	get := func(url string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer reader")
		resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: Pinned(place.Fingerprint)}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if resp := get(strings.Replace(place.URL, "https", "http", 1) + Path); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %s", resp.Status)
	}
	if resp := get(place.URL + "/snapshot"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another path: %s", resp.Status)
	}
	for range 8 {
		if resp := get(place.URL + Path); resp.StatusCode != http.StatusOK {
			t.Fatalf("there is room: %s", resp.Status)
		}
	}
	if resp := get(place.URL + Path); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "10" {
		t.Errorf("there is no room: %s", resp.Status)
	}
}

// TestPlaceOf: a Lease says where cycles are served, or what has to be done first.
func TestPlaceOf(t *testing.T) {
	t.Parallel()
	somebody, place := "a", Place{"https://10.0.0.1:8443", "00"}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kai-scheduler"}}
	if _, err := PlaceOf(l); err == nil || !strings.Contains(err.Error(), "nobody holds the Lease ns/kai-scheduler") {
		t.Error(err)
	}
	l.Spec.HolderIdentity = &somebody
	if _, err := PlaceOf(l); err == nil || !strings.Contains(err.Error(), "--cycle-listen-address") {
		t.Error(err)
	}
	l.Annotations = place.Notes()
	if p, err := PlaceOf(l); err != nil || p != place {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestTold: who has the right tells the scheduler a forecast, and hears what is wrong with it; one that writes no answers wants none, and who may not is told so.
func TestTold(t *testing.T) {
	t.Parallel()
	s := replay.NewStream("v", profile.BuiltIn(), false)
	deaf, _ := served(t, s)
	var heard string
	hears, _ := served(t, s, func(text []byte) error {
		if string(text) == "bad" {
			return errors.New("it must be good")
		}
		heard = string(text)
		return nil
	})
	for name, c := range map[string]struct {
		place             Place
		token, text, want string
	}{
		"good":     {hears, "reader", "good", ""},
		"bad":      {hears, "reader", "bad", "the scheduler refuses at " + hears.URL + ": 400 Bad Request: it must be good"},
		"no use":   {deaf, "reader", "good", ErrUnwanted.Error()},
		"a tenant": {hears, "tenant", "forged", "403 Forbidden"},
		"nobody":   {deaf, "", "forged", "401 Unauthorized"},
		"too long": {hears, "reader", strings.Repeat(" ", maxOutlook+1), "413"},
		"another":  {Place{hears.URL, deaf.Fingerprint}, "reader", "forged", "its certificate is not the one that was named"},
	} {
		client := &Client{
			Find:  func(context.Context) (Place, error) { return c.place, nil },
			Token: func() (string, error) { return c.token, nil },
		}
		if err := client.Tell(t.Context(), []byte(c.text)); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if heard != "good" {
		t.Errorf("heard %q", heard)
	}
}
