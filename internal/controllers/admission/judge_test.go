package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// judge is one of our policies, compiled as the API server compiles it.
type judge struct {
	policy  *admissionregv1.ValidatingAdmissionPolicy
	binding *admissionregv1.ValidatingAdmissionPolicyBinding
	check   validating.Validator
	// of are, of a part of joined policies, those that it is installed in; parts are what such a policy is joined of, in their order.
	of, parts []*judge
}

// asked is a request that a policy judges: by default a creation by somebody.
type asked struct {
	resource      string // RESOURCE.VERSION.GROUP, as in schema.ParseResourceArg; pods.v1. for the core group
	object, old   string // YAML or JSON
	user          string
	groups        []string
	extra         map[string][]string
	removes       bool // the object
	subresource   string
	mayUse        []string // queues
	mayBind       bool     // pods of every namespace
	mayReport     bool     // for nodes
	mayDelete     bool     // BindRequests of every namespace
	wantUnmatched bool
}

// judges compiles the parts of the options' policies, each by itself, with the policies that they are installed in.
func judges(t testing.TB, o Options) map[string]*judge {
	t.Helper()
	whole, out := installed(t, o), map[string]*judge{}
	parts := o.parts()
	for i := range parts {
		j := compiled(t, parts[i].objects())
		out[parts[i].name] = j
		if !parts[i].joined {
			continue
		}
		for _, kind := range kindsOf(parts[i].rules) {
			name := "muster-" + kind
			if fmt.Sprint(parts[i].actions) != "[Deny]" {
				name = "muster-identity-" + kind
			}
			in := whole[name]
			if in == nil {
				t.Fatalf("%s is installed nowhere, want %s", parts[i].name, name)
			}
			j.of, in.parts = append(j.of, in), append(in.parts, j)
		}
	}
	return out
}

// installed compiles the policies of the options as they are installed.
func installed(t testing.TB, o Options) map[string]*judge {
	t.Helper()
	out := map[string]*judge{}
	objects := o.Policies()
	for i := 0; i < len(objects); i += 2 {
		j := compiled(t, objects[i:i+2])
		out[j.policy.Name] = j
	}
	return out
}

func compiled(t testing.TB, objects []client.Object) *judge {
	t.Helper()
	p, isPolicy := objects[0].(*admissionregv1.ValidatingAdmissionPolicy)
	b, isBinding := objects[1].(*admissionregv1.ValidatingAdmissionPolicyBinding)
	if !isPolicy || !isBinding || b.Spec.PolicyName != p.Name {
		t.Fatalf("%T, %T: not a policy and its binding", objects[0], objects[1])
	}
	return &judge{policy: p, binding: b, check: compile(t, p)}
}

func compile(t testing.TB, p *admissionregv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	return compileFor(t, p, environment.DefaultCompatibilityVersion())
}

// compileFor compiles a policy with the CEL that API servers compatible with a version of Kubernetes allow in what is new to them.
func compileFor(t testing.TB, p *admissionregv1.ValidatingAdmissionPolicy, compatible *version.Version) validating.Validator {
	t.Helper()
	c, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(compatible))
	if err != nil {
		t.Fatal(err)
	}
	with, without := cel.OptionalVariableDeclarations{HasAuthorizer: true}, cel.OptionalVariableDeclarations{}
	for i := range p.Spec.Variables {
		v := &validating.Variable{Name: p.Spec.Variables[i].Name, Expression: p.Spec.Variables[i].Expression}
		if r := c.CompileAndStoreVariable(v, with, environment.NewExpressions); r.Error != nil {
			t.Fatalf("%s: variable %s: %s\n%s", p.Name, v.Name, r.Error.Detail, v.Expression)
		}
	}
	conditions := func(what string, of []cel.ExpressionAccessor, d cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		e := c.CompileCondition(of, d, environment.NewExpressions)
		for _, err := range e.CompilationErrors() {
			t.Fatalf("%s: %s: %v", p.Name, what, err)
		}
		return e
	}
	var checks, messages, matches []cel.ExpressionAccessor
	for i := range p.Spec.Validations {
		v := &p.Spec.Validations[i]
		checks = append(checks, &validating.ValidationCondition{Expression: v.Expression, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	var matcher matchconditions.Matcher
	for i := range p.Spec.MatchConditions {
		matches = append(matches, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	if matches != nil {
		matcher = matchconditions.NewMatcher(conditions("condition", matches, with), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	return validating.NewValidator(conditions("check", checks, with), matcher, conditions("annotation", nil, with), conditions("message", messages, without), p.Spec.FailurePolicy, nil)
}

// unmatched is what a policy says of a request that its rules do not select.
const unmatched = "(not asked)"

// says is what the policy answers: "" for nothing, or what it refuses or warns of; unmatched if it is not asked.
func (j *judge) says(t testing.TB, a asked) string {
	t.Helper()
	read := func(text string) *unstructured.Unstructured {
		if text == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		if json.Unmarshal([]byte(text), &u.Object) != nil { // the faster way for what is large
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
		if u.GetKind() == "" {
			u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Thing"})
		}
		return u
	}
	parts := strings.SplitN(a.resource, ".", 3)
	gvr := schema.GroupVersionResource{Resource: parts[0], Version: parts[1], Group: parts[2]}
	object, old, op := read(a.object), read(a.old), admission.Create
	var before runtime.Object
	if old != nil {
		op, before = admission.Update, old
	}
	if a.removes {
		op, before = admission.Delete, object
	}
	if !j.matches(gvr, a.subresource, string(op), object, old) {
		return unmatched
	}
	who := &user.DefaultInfo{Name: a.user, Groups: a.groups, Extra: a.extra}
	kind := object.GroupVersionKind()
	now := runtime.Object(object)
	if a.removes {
		now = nil
	}
	attributes := admission.NewAttributesRecord(now, before, kind, "team", object.GetName(), gvr, a.subresource, op, nil, false, who)
	may := authorizer.AuthorizerFunc(func(_ context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
		if q.GetAPIGroup() == "scheduling.run.ai" && q.GetResource() == "queues" && q.GetVerb() == "use" && q.GetUser().GetName() == a.user {
			for _, queue := range a.mayUse {
				if queue == q.GetName() || queue == "*" {
					return authorizer.DecisionAllow, "", nil
				}
			}
		}
		if q.GetResource() == "pods" && q.GetSubresource() == "binding" && q.GetVerb() == "create" && q.GetNamespace() == "" && a.mayBind {
			return authorizer.DecisionAllow, "", nil
		}
		if q.GetResource() == "bindrequests" && q.GetVerb() == "delete" && q.GetNamespace() == "" && a.mayDelete {
			return authorizer.DecisionAllow, "", nil
		}
		if q.GetResource() == "nodes" && q.GetSubresource() == "status" && q.GetVerb() == "patch" && a.mayReport {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	result := j.check.Validate(t.Context(), gvr, &admission.VersionedAttributes{
		Attributes: attributes, VersionedObject: admission.NewLazyObject(now), VersionedOldObject: admission.NewLazyObject(before), VersionedKind: kind,
	}, nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, celconfig.RuntimeCELCostBudget, may)
	var out []string
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("%s: cannot be evaluated: %s", j.policy.Name, d.Message)
		}
		if d.Action != validating.ActionAdmit {
			out = append(out, d.Message)
		}
	}
	return strings.Join(out, "; ")
}

// matches says whether the policy's rules select a request, as far as they need to be understood here.
func (j *judge) matches(gvr schema.GroupVersionResource, subresource, operation string, object, old *unstructured.Unstructured) bool {
	resource := gvr.Resource
	if subresource != "" {
		resource += "/" + subresource
	}
	for _, e := range j.policy.Spec.MatchConstraints.ObjectSelector.MatchExpressions {
		found := false
		for _, o := range []*unstructured.Unstructured{object, old} {
			if o != nil {
				_, has := o.GetLabels()[e.Key]
				found = found || has
			}
		}
		if !found {
			return false
		}
	}
	in := func(list []string, x string) bool {
		for _, l := range list {
			above, below := strings.CutSuffix(l, "/*")
			if l == x || l == "*" || l == "*/*" || below && strings.HasPrefix(x, above+"/") {
				return true
			}
		}
		return false
	}
	for _, r := range j.policy.Spec.MatchConstraints.ResourceRules {
		var ops []string
		for _, o := range r.Operations {
			ops = append(ops, string(o))
		}
		if in(r.APIGroups, gvr.Group) && in(r.APIVersions, gvr.Version) && in(r.Resources, resource) && in(ops, operation) {
			return true
		}
	}
	return false
}

// expect fails the test unless the answer contains want, or is empty when want is. The policies that it is installed in must say what
// all of their parts say, in their order, and nothing else.
func (j *judge) expect(t *testing.T, name string, a asked, want string) {
	t.Helper()
	got := j.says(t, a)
	if (got == unmatched) != a.wantUnmatched {
		t.Fatalf("%s: %s: says %q", j.policy.Name, name, got)
	}
	if got != unmatched && (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("%s: %s: says %q, want %q", j.policy.Name, name, got, want)
	}
	asked := 0
	for _, whole := range j.of {
		if whole.saysAsItsParts(t, name, a) {
			asked++
		}
	}
	if len(j.of) > 0 && (got == unmatched && asked > 1 || got != unmatched && asked != 1) {
		t.Errorf("%s: %s: %d of the policies that it is in are asked", j.policy.Name, name, asked)
	}
}

// saysAsItsParts fails the test if a joined policy says of a request what its parts do not, or less; false is that it is not asked.
func (j *judge) saysAsItsParts(t *testing.T, name string, a asked) bool {
	t.Helper()
	got := j.says(t, a)
	if got == unmatched {
		return false
	}
	var want []string
	for _, part := range j.parts {
		if said := part.says(t, a); said != unmatched && said != "" {
			want = append(want, said)
		}
	}
	if all := strings.Join(want, "; "); got != all {
		t.Errorf("%s: %s: says %q, and its parts %q", j.policy.Name, name, got, all)
	}
	return true
}

// serviceAccount is the user that a service account is, and its groups.
func serviceAccount(namespace, name string) (string, []string) {
	return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name), []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}
