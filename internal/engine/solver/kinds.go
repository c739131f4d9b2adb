package solver

import (
	"cmp"
	"slices"
)

// brood is the queues below one that have victims, by kind. Whether anybody may be asked, and what those are told of who may not,
// then costs a question per kind, of which there are few, and not one per queue.
type brood struct {
	kinds []*kind
	byKey map[string]*kind
}

// kind is siblings of which the rules about victim queues say the same to everybody (engine.SiblingFilter), and of which all have gangs
// that may be victims at all, or none.
type kind struct {
	key   string
	of    []*branch // in the order of the siblings
	gangs int       // below them that may be victims at all
	first []mention // the first of those by name; nil until asked for
	whole bool      // they are all there are
	names []string  // of the first, as long as they are; not to be changed
}

// mention is a gang's name, and below which sibling it is.
type mention struct {
	text  string
	below *branch
}

// keptMentions is how many mentions a kind keeps: more than are told, so that hardly ever all have to be looked at again when a
// queue leaves it, or is left out.
const keptMentions = 8 * named

// broodOf returns the queues below one, or those at the top (nil), by kind as the session stands: O(queues below it) the first
// time, then O(depth) for each charge since.
func (vq *victimQueues) broodOf(up *branch) *brood {
	vq.sortOut()
	b := vq.broods[up]
	if b == nil {
		b = &brood{byKey: map[string]*kind{}}
		bs := vq.top
		if up != nil {
			bs = up.kids
		}
		for _, k := range bs {
			b.add(k, vq.standing(k))
		}
		if vq.broods == nil {
			vq.broods = map[*branch]*brood{}
		}
		vq.broods[up] = b
	}
	return b
}

// sortOut finds the kinds anew of all queues that hold more or less than before.
func (vq *victimQueues) sortOut() {
	charged := vq.s.Ledger.Charged()
	for ; vq.sorted < len(charged) && len(vq.broods) > 0; vq.sorted++ {
		if next := vq.sorted + 1; next < len(charged) && charged[next] == charged[vq.sorted] {
			continue
		}
		for q := charged[vq.sorted]; q != nil; q = q.Parent {
			b := vq.nodes[q.ID]
			if b == nil || b.kind == nil {
				continue
			}
			if key := vq.standing(b); b.kind.key != string(key) {
				b.kind.remove(b)
				vq.broods[b.up].add(b, key)
			}
		}
	}
	vq.sorted = len(charged)
}

func (vq *victimQueues) standing(b *branch) []byte {
	key := append(make([]byte, 0, 32), '-')
	if b.heads().count > 0 {
		key[0] = '+'
	}
	return vq.s.Rules.Standing(key, b.queue)
}

func (o *brood) add(b *branch, key []byte) {
	k := o.byKey[string(key)]
	if k == nil {
		k = &kind{key: string(key)}
		o.byKey[k.key], o.kinds = k, append(o.kinds, k)
	}
	b.kind = k
	at, _ := k.find(b)
	k.of = slices.Insert(k.of, at, b)
	k.gangs += b.heads().count
	if k.first != nil {
		k.mention(b)
	}
}

func (k *kind) find(b *branch) (int, bool) { return slices.BinarySearchFunc(k.of, b, bySiblings) }

func bySiblings(a, b *branch) int { return cmp.Compare(a.at, b.at) }

func (k *kind) remove(b *branch) {
	if at, there := k.find(b); there {
		k.of = slices.Delete(k.of, at, at+1)
		k.gangs -= b.heads().count
		k.names = nil
		k.first = slices.DeleteFunc(k.first, func(m mention) bool { return m.below == b })
	}
}

// stands returns the first of the kind, one queue left out, which stands for all; nil for none.
func (k *kind) stands(but *branch) *branch {
	for _, b := range k.of {
		if b != but {
			return b
		}
	}
	return nil
}

// others returns those of the kind, one queue left out.
func (k *kind) others(but *branch) []*branch {
	if but == nil || but.kind != k {
		return k.of
	}
	at, _ := k.find(but)
	return slices.Concat(k.of[:at], k.of[at+1:])
}

// mention takes the first gangs below a queue among those of the kind.
func (k *kind) mention(b *branch) {
	for _, text := range b.heads().names {
		n := len(k.first)
		if !k.whole && (n == 0 || text > k.first[n-1].text) {
			return // there may be others before it, and before those that follow
		}
		at, _ := slices.BinarySearchFunc(k.first, text, func(m mention, t string) int { return cmp.Compare(m.text, t) })
		k.names = nil
		if k.first = slices.Insert(k.first, at, mention{text, b}); n == keptMentions {
			k.first, k.whole = k.first[:n], false
		}
	}
}

// but returns the first by name of the kind's gangs, those below one queue left out.
func (k *kind) but(own *branch) []string {
	for {
		if k.names != nil && !slices.ContainsFunc(k.first[:len(k.names)], func(m mention) bool { return m.below == own }) {
			return k.names
		}
		out := make([]string, 0, named)
		for _, m := range k.first {
			if m.below != own && len(out) < named {
				out = append(out, m.text)
			}
		}
		if len(out) == named || k.first != nil && k.whole {
			if len(out) == min(named, len(k.first)) && (len(out) == 0 || k.first[len(out)-1].text == out[len(out)-1]) {
				k.names = out
			}
			return out
		}
		k.names = nil
		k.first, k.whole = make([]mention, 0, keptMentions+1), true
		for _, b := range k.of {
			k.mention(b)
		}
	}
}
