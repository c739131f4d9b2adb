package admission

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
)

// Names of the policies that are joined of parts; see join.
const (
	// PolicyPods judges pods, their subresources and Bindings.
	PolicyPods = "muster-pods"
	// PolicyGroups judges PodGroups.
	PolicyGroups = "muster-podgroups"
	// PolicyRequests judges BindRequests.
	PolicyRequests = "muster-bindrequests"
	// PolicyClaims judges ResourceClaims.
	PolicyClaims = "muster-resourceclaims"
)

const (
	joinedPrefix = "muster-"
	// joinedWarns begins the names of those that do not refuse. Only rules of identity can be so.
	joinedWarns = "muster-identity-"
)

// join makes one policy of all parts that are to be joined, judge the same kind of object and do the same about it. Parts that are not
// to be joined stay as they are, and all come in the order of their first parts.
//
// It is for the API server's sake. For each policy whose rules select a request it makes maps of the object and of the old one: once
// to see whether the conditions match, and three times more if they do (for checks, messages and annotations of the audit log). With a
// policy for each part that was most of what an installation cost it. So there is one policy for a kind of object, and its condition,
// breaks-a-rule, already asks all of the checks: a request that breaks none, as nearly all do, costs one look, and the checks are asked
// again only to say which of them it was that refuses.
//
// What a part says of a request does not change. Its checks begin with whether they are about the request: of its rules, and not
// skipped. A check that cannot be evaluated refuses, as the condition does then.
func join(parts []policy) []policy {
	var out []policy
	at := map[string]int{} // index into out
	for i := range parts {
		p := &parts[i]
		if !p.joined {
			out = append(out, *p)
			continue
		}
		for _, kind := range kindsOf(p.rules) {
			name := joinedPrefix + kind
			if !slices.Equal(p.actions, deny) {
				name = joinedWarns + kind
			}
			k, found := at[name]
			if !found {
				k = len(out)
				at[name] = k
				out = append(out, policy{name: name, joined: true, actions: p.actions})
			}
			out[k].take(p, kind)
		}
	}
	for i := range out {
		if p := &out[i]; p.joined {
			p.broken = p.breaks()
		}
	}
	return out
}

// take adds a part's checks of one kind of object.
func (p *policy) take(part *policy, kind string) {
	selected := variable("request", "request.resource.resource + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource) + ' ' + request.operation")
	if !slices.Contains(p.variables, selected) {
		p.variables = append(p.variables, selected)
	}
	var about []string
	for _, r := range part.rules {
		if kindOf(&r) != kind {
			continue
		}
		if !slices.ContainsFunc(p.rules, func(o admissionregv1.NamedRuleWithOperations) bool { return reflect.DeepEqual(o, r) }) {
			p.rules = append(p.rules, r)
		}
		for _, resource := range r.Resources {
			for _, operation := range r.Operations {
				about = append(about, resource+" "+string(operation))
			}
		}
	}
	short := strings.NewReplacer("-", "_").Replace(strings.TrimPrefix(part.name, "muster-"))
	renamed := map[string]string{}
	for _, v := range part.variables {
		v.Expression = rename(v.Expression, renamed)
		if k := slices.IndexFunc(p.variables, func(o admissionregv1.Variable) bool { return o.Name == v.Name }); k >= 0 {
			if p.variables[k].Expression == v.Expression {
				continue
			}
			renamed[v.Name] = short + "_" + v.Name
			v.Name = renamed[v.Name]
		}
		p.variables = append(p.variables, v)
	}
	said := saying{skip: part.skip, selects: fmt.Sprintf("variables.request in %s", quoted(about))}
	asked := said.selects
	if part.skip != "" {
		asked = fmt.Sprintf("!(%s) && %s", part.skip, asked)
	}
	p.variables = append(p.variables, variable(short, asked))
	for _, c := range part.checks {
		asks := c.Expression
		if cheap, is := part.surely[asks]; is {
			asks = cheap
		}
		said.asks = append(said.asks, rename(asks, renamed))
		c.Expression = fmt.Sprintf("!variables.%s || (%s)", short, rename(c.Expression, renamed))
		c.MessageExpression = rename(c.MessageExpression, renamed)
		p.checks = append(p.checks, c)
	}
	p.said = append(p.said, said)
}

// saying is what a part says of a request: nothing of those to skip and of those that its rules do not select; of others, all that it asks.
type saying struct {
	skip, selects string   // CEL; a skip of "" is of none
	asks          []string // CEL; none is empty
}

// breaks is the condition that a request breaks one of the checks, or may break one that it asks only of few; see surely. Conditions know
// no variables: each is put in where it is named. Parts that skip the same requests are asked together, after that has been asked once:
// whom Muster trusts may be a long list, and an expression of more than 100,000 characters is none.
func (p *policy) breaks() string {
	values := map[string]string{}
	put := func(expression string) string {
		return ofVariables.ReplaceAllStringFunc(expression, func(v string) string { return "(" + values[strings.TrimPrefix(v, "variables.")] + ")" })
	}
	for _, v := range p.variables { // each names only those before it
		values[v.Name] = put(v.Expression)
	}
	var skips []string
	kept := map[string][]string{} // by skip
	for _, s := range p.said {
		if !slices.Contains(skips, s.skip) {
			skips = append(skips, s.skip)
		}
		kept[s.skip] = append(kept[s.skip], fmt.Sprintf("(!(%s) || (%s))", put(s.selects), put("("+strings.Join(s.asks, ") && (")+")")))
	}
	for i, skip := range skips {
		all := "(" + strings.Join(kept[skip], " && ") + ")"
		if skip != "" {
			all = fmt.Sprintf("((%s) || %s)", skip, all)
		}
		skips[i] = all
	}
	return "!(" + strings.Join(skips, " && ") + ")"
}

// ofVariables is where an expression names a variable. Our texts, which are in quotes, have nothing like it.
var ofVariables = regexp.MustCompile(`\bvariables\.[A-Za-z0-9_]+`)

// rename has an expression name variables by their new names.
func rename(expression string, names map[string]string) string {
	return ofVariables.ReplaceAllStringFunc(expression, func(v string) string {
		if name, ok := names[strings.TrimPrefix(v, "variables.")]; ok {
			return "variables." + name
		}
		return v
	})
}

// kindsOf are the kinds of objects that rules are about, in their order.
func kindsOf(rules []admissionregv1.NamedRuleWithOperations) []string {
	var out []string
	for i := range rules {
		if kind := kindOf(&rules[i]); !slices.Contains(out, kind) {
			out = append(out, kind)
		}
	}
	return out
}

// kindOf is the resource that a rule is about, all of whose subresources count for the same: pods, for Bindings, too. A rule names
// resources of one kind only.
func kindOf(r *admissionregv1.NamedRuleWithOperations) string {
	kind, _, _ := strings.Cut(r.Resources[0], "/")
	if kind == "bindings" {
		return "pods"
	}
	return kind
}
