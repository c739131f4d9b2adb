package proxy

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kind is a kind of object that backends list.
type kind uint8

const (
	sandboxes kind = iota
	containers
	images
	kinds
)

func (k kind) String() string { return [...]string{"sandboxes", "containers", "images"}[k] }

// one is the kind's word for one of it.
func (k kind) one() string { return [...]string{"sandbox", "container", "image"}[k] }

// trust says what it means that an item is not known.
type trust uint8

const (
	// unknown: nothing follows. A list of a backend that does not answer fails.
	unknown trust = iota
	// assumed: no proxy ever heard from the backend, so that no pod can have gone there. It holds only while the backend
	// cannot be reached; one that can be and does not answer might have anything.
	assumed
	// heard: the backend has told all it had.
	heard
)

// known is what one backend is known to have. It is safe for concurrent use.
type known struct {
	mu    sync.RWMutex
	seq   uint64 // of changes by calls
	kinds [kinds]struct {
		trust trust
		items map[string]item
	}
	// dirty are items that the store has not written yet; dirtyTrust the kinds whose trust it has not.
	dirty      map[itemKey]struct{}
	dirtyTrust [kinds]bool
}

type itemKey struct {
	kind kind
	id   string
}

type item struct {
	// body is the item as lists have it: a message PodSandbox, Container or Image.
	body []byte
	// seq is that of the call which put it, 0 if it was a list.
	seq uint64
}

func newKnown() *known {
	k := &known{dirty: map[itemKey]struct{}{}}
	for i := range k.kinds {
		k.kinds[i].items = map[string]item{}
	}
	return k
}

// mark gives the moment before a list is asked for; replace takes it.
func (k *known) mark() uint64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.seq
}

// replace takes over a whole list that was asked for at since. What calls have put after that stays. Items without an id are left out.
func (k *known) replace(kind kind, list [][]byte, since uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := &k.kinds[kind]
	told := make(map[string]struct{}, len(list))
	for _, body := range list {
		id := stringField(body, 1)
		if id == "" {
			continue
		}
		told[id] = struct{}{}
		old, ok := of.items[id]
		if ok && old.seq > since {
			continue // the list may be older than what the call did
		}
		if ok && bytes.Equal(old.body, body) {
			continue
		}
		// A copy: the item must not keep the whole answer in memory.
		of.items[id] = item{body: bytes.Clone(body)}
		k.dirty[itemKey{kind, id}] = struct{}{}
	}
	for id, it := range of.items {
		if _, ok := told[id]; !ok && it.seq <= since {
			delete(of.items, id)
			k.dirty[itemKey{kind, id}] = struct{}{}
		}
	}
	if of.trust != heard {
		of.trust = heard
		k.dirtyTrust[kind] = true
	}
}

// put takes over what a call has created or changed.
func (k *known) put(kind kind, id string, body []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq++
	k.kinds[kind].items[id] = item{body: body, seq: k.seq}
	k.dirty[itemKey{kind, id}] = struct{}{}
}

// edit changes one item by a call's effect; change gets a copy of it. An item that is not known stays so.
func (k *known) edit(kind kind, id string, change func(body []byte) []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it, ok := k.kinds[kind].items[id]
	if !ok {
		return
	}
	k.seq++
	k.kinds[kind].items[id] = item{body: change(bytes.Clone(it.body)), seq: k.seq}
	k.dirty[itemKey{kind, id}] = struct{}{}
}

// drop forgets what a call has removed.
func (k *known) drop(kind kind, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq++
	delete(k.kinds[kind].items, id)
	k.dirty[itemKey{kind, id}] = struct{}{}
}

// has tells whether the backend is known to have the item.
func (k *known) has(kind kind, id string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.kinds[kind].items[id]
	return ok
}

// trusted is what it means that an item is not known.
func (k *known) trusted(kind kind) trust {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.kinds[kind].trust
}

// list gives the known items that match, ordered by id. They must not be changed.
func (k *known) list(kind kind, match func(body []byte) bool) [][]byte {
	k.mu.RLock()
	defer k.mu.RUnlock()
	items := k.kinds[kind].items
	var out [][]byte
	for _, id := range slices.Sorted(maps.Keys(items)) {
		if match(items[id].body) {
			out = append(out, items[id].body)
		}
	}
	return out
}

// any tells whether one of the items passes the test.
func (k *known) any(kind kind, test func(body []byte) bool) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, it := range k.kinds[kind].items {
		if test(it.body) {
			return true
		}
	}
	return false
}

// filter makes the test of a list's request: what a runtime would do with it. An error is a request that no runtime could read.
func filter(kind kind, req []byte) (func(body []byte) bool, error) {
	labels := func(have, want map[string]string) bool {
		for key, value := range want {
			if v, ok := have[key]; !ok || v != value {
				return false
			}
		}
		return true
	}
	switch kind {
	case sandboxes:
		var r cri.ListPodSandboxRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return nil, err
		}
		f := r.GetFilter()
		return func(body []byte) bool {
			var s cri.PodSandbox
			return proto.Unmarshal(body, &s) == nil &&
				(f.GetId() == "" || f.GetId() == s.GetId()) &&
				(f.GetState() == nil || f.GetState().GetState() == s.GetState()) &&
				labels(s.GetLabels(), f.GetLabelSelector())
		}, nil
	case containers:
		var r cri.ListContainersRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return nil, err
		}
		f := r.GetFilter()
		return func(body []byte) bool {
			var c cri.Container
			return proto.Unmarshal(body, &c) == nil &&
				(f.GetId() == "" || f.GetId() == c.GetId()) &&
				(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.GetPodSandboxId()) &&
				(f.GetState() == nil || f.GetState().GetState() == c.GetState()) &&
				labels(c.GetLabels(), f.GetLabelSelector())
		}, nil
	default:
		var r cri.ListImagesRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return nil, err
		}
		name := r.GetFilter().GetImage().GetImage()
		return func(body []byte) bool { return name == "" || isImage(body, name) }, nil
	}
}

// isImage tells whether an item of an image list goes by that id, tag or digest.
func isImage(body []byte, name string) bool {
	var i cri.Image
	if proto.Unmarshal(body, &i) != nil {
		return false
	}
	return sameID(i.GetId(), name) || slices.Contains(i.GetRepoTags(), name) || slices.ContainsFunc(i.GetRepoDigests(), func(d string) bool {
		_, digest, ok := bytes.Cut([]byte(d), []byte("@"))
		return d == name || (ok && string(digest) == name)
	})
}
