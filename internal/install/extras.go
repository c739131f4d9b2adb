package install

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationRoles on a Config says what roles get that Config has no field for: the JSON of a map from the role's name, or AllRoles, to
// an Extra.
const AnnotationRoles = "muster.dev/roles"

// AllRoles stands in that map for every role; what a role has of its own is added to it, and counts where the two differ.
const AllRoles = "all"

// Extra is what the pods of a role get besides.
type Extra struct {
	// Args are flags, each of the form --name=value. They count before those that Config leads to.
	Args []string `json:"args,omitempty"`
	// Env are environment variables of the container; one that the role has already is replaced.
	Env []corev1.EnvVar `json:"env,omitempty"`
	// PodAnnotations are those of the pods. What the operator notes there itself stays.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// LogLevel is debug, info, error, or a number from 0: the highest level of messages that are logged.
	LogLevel string `json:"logLevel,omitempty"`
}

// unalterable are flags that nobody changes behind Config's back, and why.
var unalterable = map[string]string{
	"leader-elect":              "every replica elects, so that old and new never work beside each other",
	"listen-address":            "Services and probes follow the port that Config says",
	"metrics-bind-address":      "Services and probes follow the port that Config says",
	"metrics-listen-address":    "Services and probes follow the port that Config says",
	"health-probe-bind-address": "Services and probes follow the port that Config says",
	"webhook-addr":              "Services and probes follow the port that Config says",
}

// extras reads the annotation. What cannot be read has no effect as a whole, so that nothing is half done.
func (r *renderer) extras() map[string]Extra {
	text := r.notes[AnnotationRoles]
	if text == "" {
		return nil
	}
	var out map[string]Extra
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		r.warn("metadata.annotations."+AnnotationRoles, "has no effect: %v", err)
		return nil
	}
	known := []string{AllRoles, Scheduler, Binder, PodGrouper, PodGroup, Queue, Admission, NodeScale, Exporter}
	for _, role := range slices.Sorted(maps.Keys(out)) {
		if !slices.Contains(known, role) {
			r.warn("metadata.annotations."+AnnotationRoles, "names the role %q, which has no effect; there are %s", role, strings.Join(known, ", "))
		}
	}
	return out
}

// extra is what a role gets, of all roles' and of its own, in its own words: the level of the log is one of its flags. Flags are left
// out that are among given.
func (r *renderer) extra(role string, given []string) Extra {
	all := r.extras()
	common, own := all[AllRoles], all[role]
	out := Extra{
		Env: mergeEnv(mergeEnv(nil, common.Env), own.Env), PodAnnotations: map[string]string{},
	}
	maps.Copy(out.PodAnnotations, common.PodAnnotations)
	maps.Copy(out.PodAnnotations, own.PodAnnotations)
	level := own.LogLevel
	if level == "" {
		level = common.LogLevel
	}
	out.Args = flags(r.logLevel(role, level)).without(given)
	for _, arg := range slices.Concat(common.Args, own.Args) {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		const field = "metadata.annotations." + AnnotationRoles
		switch why := unalterable[name]; {
		case !strings.HasPrefix(arg, "--"):
			r.warn(field, "has the argument %q, which is left out: it is not of the form --name=value", arg)
		case why != "":
			r.warn(field, "has the argument %q, which is left out: %s", arg, why)
		default:
			out.Args = append(out.Args, arg)
		}
	}
	return out
}

// given says whether a role is given one of these flags besides those that Config leads to, whatever their values.
func (r *renderer) given(role string, names ...string) bool {
	all := r.extras()
	return slices.ContainsFunc(slices.Concat(all[AllRoles].Args, all[role].Args), func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return slices.Contains(names, name)
	})
}

// values are what a role is given by a flag besides those that Config leads to, separated by commas or by repeating it.
func (r *renderer) values(role, name string) (out []string) {
	all := r.extras()
	for _, arg := range slices.Concat(all[AllRoles].Args, all[role].Args) {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			out = append(out, strings.Split(value, ",")...)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// logLevel is the flag by which a role is told what to log: the scheduler's is another, as KAI's, and knows numbers only.
func (r *renderer) logLevel(role, level string) (f flags) {
	number, word := map[string]int{"debug": 1, "info": 0, "error": 0}[level]
	if !word {
		var err error
		if number, err = strconv.Atoi(level); level != "" && (err != nil || number < 0) {
			r.warn("metadata.annotations."+AnnotationRoles, "says of %s the level %q, which has no effect: it is neither debug, info, error nor a number from 0", role, level)
			return nil
		}
	}
	switch {
	case level == "":
	case role == Scheduler:
		f.set("v", number)
	default:
		f.set("zap-log-level", level)
	}
	return f
}

// mergeEnv adds variables to others, in their order; those of the same name take their place.
func mergeEnv(vars, more []corev1.EnvVar) []corev1.EnvVar {
	out := slices.Clone(vars)
	for _, v := range more {
		if i := slices.IndexFunc(out, func(o corev1.EnvVar) bool { return o.Name == v.Name }); i >= 0 {
			out[i] = v
		} else {
			out = append(out, v)
		}
	}
	return out
}
