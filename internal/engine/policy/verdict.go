package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Code is how final an answer is.
type Code uint8

// The codes.
const (
	OK        Code = iota
	No             // not now: room or policy may change it
	NoForever      // not until the gang or the configuration is edited
	Wait           // not before Verdict.WakeAt
)

// Reason is a no as whoever says it declares it, once: a variable beside what says it, and a line in the registry. Docs, metrics,
// conditions and tests use the key; people read the text. Reasons are compared by identity; nil is none.
type Reason struct {
	// Key is stable, and nobody else's.
	Key string
	// Text is the sentence for people, see [Verdict.String]. Many stands for it where the verdict is about no one object but several,
	// Partly where the search was partial; either may be empty. Say, if set, makes the text instead.
	Text, Many, Partly string
	Say                func(v Verdict) string
	// Unblock is what would lift it, and with that whether another node might.
	Unblock Unblock
	// Untried says that it is about the gang by itself: no place was looked for.
	Untried bool
	// Hinders says that of all that stops others from making way, this is what somebody could do something about.
	Hinders bool

	read bool // from a file, which has nothing but the key
}

// String is the key.
func (r *Reason) String() string {
	if r == nil {
		return ""
	}
	return r.Key
}

// MarshalText writes the key.
func (r *Reason) MarshalText() ([]byte, error) { return []byte(r.Key), nil }

// UnmarshalText reads a key. What it makes is not the reason that was declared, but stands for it; see [Reason.Reread].
func (r *Reason) UnmarshalText(key []byte) error {
	*r = Reason{Key: string(key), read: true}
	return nil
}

// Reread says that it was read from a file: it has nothing but the key of the reason that it stands for.
func (r *Reason) Reread() bool { return r != nil && r.read }

// Equal says whether two are of one key; it is for what compares by reflection.
func (r *Reason) Equal(o *Reason) bool { return r.String() == o.String() }

// Room says whether the reason is a want of room, which may come back or be made.
func (r *Reason) Room() bool {
	return r != nil && (r.Unblock == UnblockRoom || r.Unblock == UnblockTogether)
}

// NodesHelp says whether a gang that waits for this could start if the cluster had another node.
func (r *Reason) NodesHelp() bool { return r == nil || r.Unblock < UnblockGang }

// Unblock is what would lift a reason: by itself, by somebody's doing, or by another node.
type Unblock int8

// What another node might lift, or what no gang waits for by itself.
const (
	UnblockUnknown   Unblock = iota
	UnblockNode              // something about the node, or another one
	UnblockRoom              // places for pods
	UnblockSize              // a node larger than any
	UnblockFirst             // a node: there is none
	UnblockTogether          // places together, or not to require that
	UnblockTime              // until WakeAt, or somebody else's minimum
	UnblockTurn              // the next run
	UnblockPriority          // a higher one
	UnblockShare             // a larger fair share for the queue
	UnblockAdmission         // room that may be laid claim to: another node, a queue that may have more, or others that end
)

// What no node lifts.
const (
	UnblockGang       Unblock = iota + UnblockAdmission + 1 // what its spec says wrongly
	UnblockConstraint                                       // its topology constraint, or the topology
	UnblockFeature                                          // what its pods ask for and nobody gives
	UnblockPods                                             // more of them
	UnblockGates                                            // their scheduling gates
	UnblockSubgroup                                         // the name of a subgroup that its pods bear
	UnblockRetry                                            // to forget the attempt that stopped it
	UnblockQueue                                            // a queue of the name, or another one for the gang
	UnblockLeaf                                             // a queue below the gang's
	UnblockTree                                             // the queues above
	UnblockOpen                                             // a queue that is opened, or another one for the gang
	UnblockLimit                                            // a higher one
	UnblockQuota                                            // a higher one
	UnblockDepth                                            // fewer gangs before it, or a greater depth
	UnblockConfigMap                                        // one that does not exist
	UnblockObject                                           // another object that it names, made or mended
	UnblockBind                                             // the next try of a bind, at WakeAt
	UnblockSettings                                         // the configuration
	UnblockStart                                            // nothing: it has room, and what is under way ends
	UnblockNamespace                                        // a higher quota of its namespace, or others of it that end
)

// Verdict is a typed answer. The zero Verdict is yes.
type Verdict struct {
	Code   Code    `json:"code"`
	Reason *Reason `json:"reason,omitempty"`
	// Plugin names who said it; "" for the engine itself.
	Plugin string `json:"plugin,omitempty"`
	// Object names what it is about: a queue, a pod, a taint, a ConfigMap.
	Object string `json:"object,omitempty"`
	// Dim is the dimension by name, Need what was asked, Have what there is, in base units of Dim (or pods for Dim "").
	Dim  string `json:"dim,omitempty"`
	Need int64  `json:"need,omitempty"`
	Have int64  `json:"have,omitempty"`
	// Detail is one sentence that the other fields cannot say.
	Detail string `json:"detail,omitempty"`
	// Partial says that the search was not exhaustive: a placement may exist that was not found.
	Partial bool `json:"partial,omitempty"`
	// WakeAt is when a Wait is over.
	WakeAt cluster.Instant `json:"wakeAt,omitzero"`
}

// Yes says whether the verdict lets things pass.
func (v Verdict) Yes() bool { return v.Code == OK }

// String prints the verdict as one sentence for people: the text of its reason with {object}, {dim}, {need}, {have}, {detail} and {partial}
// (that the search was) filled in, {object:q} and {detail:q} quoted, and without what stands in brackets around one that is empty.
func (v Verdict) String() string {
	r := v.Reason
	switch {
	case v.Code == OK:
		return "ok"
	case r == nil:
		return strings.TrimSpace(v.Detail)
	case r.Say != nil:
		return r.Say(v)
	case v.Partial && r.Partly != "":
		return v.Fill(r.Partly)
	case v.Object == "" && r.Many != "":
		return v.Fill(r.Many)
	case r.Text == "":
		return strings.TrimSpace(r.Key + " " + v.Detail)
	}
	return v.Fill(r.Text)
}

// Fill fills in a text as [Verdict.String] says.
func (v Verdict) Fill(text string) string {
	out := make([]byte, 0, 2*len(text))
	start := -1 // of the brackets, in out
	empty := false
	for {
		at := strings.IndexAny(text, "{[]")
		if at < 0 {
			return string(append(out, text...))
		}
		out = append(out, text[:at]...)
		what := text[at]
		text = text[at+1:]
		switch what {
		case '[':
			start, empty = len(out), false
		case ']':
			if empty {
				out = out[:start]
			}
		default:
			name, after, _ := strings.Cut(text, "}")
			value := v.field(name)
			out, text, empty = append(out, value...), after, empty || value == ""
		}
	}
}

// field is what stands for a name in a text.
func (v *Verdict) field(name string) string {
	amount := func(x int64) string {
		d := cluster.BaseDims()
		i, ok := d.Index(v.Dim)
		if !ok {
			i = d.Len()
		}
		return d.FormatOne(i, x)
	}
	switch name {
	case "object":
		return v.Object
	case "object:q":
		return strconv.Quote(v.Object)
	case "detail":
		return v.Detail
	case "detail:q":
		return strconv.Quote(v.Detail)
	case "dim":
		return v.Dim
	case "need":
		return amount(v.Need)
	case "have":
		return amount(v.Have)
	case "partial":
		if v.Partial {
			return "searched: partial"
		}
		return ""
	}
	return "{" + name + "}"
}

// Tally counts equal verdicts over nodes, for "why not": most frequent first.
type Tally []Count

// Count is how many nodes gave one verdict.
type Count struct {
	Verdict Verdict `json:"verdict"`
	Nodes   int     `json:"nodes"`
	// Named are the first of these nodes by name, at most eight.
	Named []string `json:"named,omitempty"`
}

// Detailed is String with the names of nodes: "3 insufficient gpu (n1, n2, n3)".
func (t Tally) Detailed() string {
	parts := make([]string, 0, len(t))
	for _, c := range t {
		part := fmt.Sprintf("%d %s", c.Nodes, c.Verdict)
		if names := strings.Join(c.Named, ", "); names != "" {
			if c.Nodes > len(c.Named) {
				names += ", …"
			}
			part += " (" + names + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// String prints "3 insufficient gpu, 1 node takes no pods: NotReady".
func (t Tally) String() string {
	parts := make([]string, 0, len(t))
	for _, c := range t {
		parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, c.Verdict))
	}
	return strings.Join(parts, ", ")
}
