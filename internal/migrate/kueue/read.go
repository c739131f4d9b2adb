package kueue

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// configGroup is the API group of Kueue's own configuration.
const configGroup = "config.kueue.x-k8s.io"

// configKey is the key of the ConfigMap that Kueue's manifests put the configuration under.
const configKey = "controller_manager_config.yaml"

// maxNested bounds lists in lists of objects.
const maxNested = 8

// Read adds the documents of a manifest, YAML or JSON, to what was read. source names it in errors. Objects of others than Kueue are passed
// over, but for PriorityClasses and the ConfigMap with Kueue's configuration. A document that is none is an error; an object of Kueue's
// that cannot be read is a refusal.
func (o *Objects) Read(source string, text []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var object map[string]any
		if err == nil {
			err = yaml.Unmarshal(document, &object)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", source, n, err)
		}
		o.add(object, 0)
	}
}

// Add adds one object, as an API server hands it out.
func (o *Objects) Add(object map[string]any) { o.add(object, 0) }

func (o *Objects) add(object map[string]any, depth int) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, version, _ := strings.Cut(apiVersion, "/")
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	items, isList := object["items"].([]any)
	switch {
	case isList && strings.HasSuffix(kind, "List"):
		for _, item := range items {
			inner, ok := item.(map[string]any)
			if !ok || depth == maxNested {
				continue
			}
			if inner["kind"] == nil && kind != "List" {
				inner = maps.Clone(inner)
				inner["apiVersion"], inner["kind"] = apiVersion, strings.TrimSuffix(kind, "List")
			}
			o.add(inner, depth+1)
		}
	case group == Group:
		o.read(version, kind, namespace, name, object)
	case group == configGroup:
		o.configure("Configuration", object)
	case apiVersion == "v1" && kind == "ConfigMap":
		data, _ := object["data"].(map[string]any)
		inside, ok := data[configKey].(string)
		var config map[string]any
		if !ok || !strings.Contains(inside, configGroup) {
			return
		}
		about := called("ConfigMap", namespace, name)
		if err := yaml.Unmarshal([]byte(inside), &config); err != nil {
			o.refuse(about, "data["+configKey+"]", "is no YAML: "+brief(err.Error()), "")
			return
		}
		o.configure(about, config)
	case group == "scheduling.k8s.io" && kind == "PriorityClass":
		if o.Taken == nil {
			o.Taken = map[string]int32{}
		}
		switch v := object["value"].(type) {
		case float64:
			o.Taken[name] = int32(max(-1<<31, min(v, 1<<31-1)))
		case int64:
			o.Taken[name] = int32(max(-1<<31, min(v, 1<<31-1)))
		default:
			o.Taken[name] = 0
		}
	}
}

// versions are those of each kind that is read.
func versions(kind string) []string {
	switch kind {
	case "Cohort":
		return []string{"v1beta2", "v1beta1", "v1alpha1"}
	case "ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass":
		return []string{"v1beta2", "v1beta1"}
	}
	return nil
}

func (o *Objects) read(version, kind, namespace, name string, object map[string]any) {
	about := called(kind, namespace, name)
	served := versions(kind)
	switch {
	case served == nil:
		o.lose(about, "", fmt.Sprintf("objects of the kind %s are not translated", brief(kind)), instead(kind))
		return
	case !slices.Contains(served, version):
		o.refuse(about, "apiVersion", fmt.Sprintf("is %s/%s; read are the versions %s", Group, brief(version), strings.Join(served, ", ")), "let the API server write it in one of them: kubectl get -o yaml")
		return
	case name == "":
		o.refuse(about, "metadata.name", "is missing, or no string", "")
		return
	}
	var err error
	var read any
	switch kind {
	case "ClusterQueue":
		read = &ClusterQueue{Name: name}
	case "Cohort":
		read = &Cohort{Name: name}
	case "LocalQueue":
		read = &LocalQueue{Namespace: namespace, Name: name}
	case "ResourceFlavor":
		read = &ResourceFlavor{Name: name}
	case "WorkloadPriorityClass":
		read = &WorkloadPriorityClass{Name: name}
	}
	if err = o.decode(object, read); err != nil {
		field, rule := "", brief(err.Error())
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			field, rule = wrong.Field, fmt.Sprintf("is of the type %s; it must be %s", brief(wrong.Value), jsonType(wrong.Type))
		}
		o.refuse(about, field, rule, "")
		return
	}
	for _, path := range unknown(reflect.TypeOf(read).Elem(), object, "") {
		o.lose(about, path, "Muster does not know this field", "see what it says; it has no effect")
	}
	switch r := read.(type) {
	case *ClusterQueue:
		o.ClusterQueues = append(o.ClusterQueues, *r)
	case *Cohort:
		o.Cohorts = append(o.Cohorts, *r)
	case *LocalQueue:
		o.LocalQueues = append(o.LocalQueues, *r)
	case *ResourceFlavor:
		o.ResourceFlavors = append(o.ResourceFlavors, *r)
	case *WorkloadPriorityClass:
		o.Priorities = append(o.Priorities, *r)
	}
}

func (o *Objects) configure(about string, config map[string]any) {
	if o.Config != nil {
		o.refuse(about, "", "a second configuration of Kueue's; there is one", "leave one out")
		return
	}
	o.Config = &Configuration{}
	if err := o.decode(config, o.Config); err != nil {
		o.refuse(about, "", brief(err.Error()), "")
	}
}

func (o *Objects) decode(object map[string]any, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (o *Objects) refuse(object, field, rule, instead string) {
	o.Refusals = append(o.Refusals, Note{object, field, rule, instead})
}

func (o *Objects) lose(object, field, rule, instead string) {
	o.Losses = append(o.Losses, Note{object, field, rule, instead})
}

// instead is what there is for the kinds of Kueue's that have no counterpart.
func instead(kind string) string {
	switch kind {
	case "Topology":
		return "a Topology of kai.scheduler/v1alpha1 with the same node labels, and the annotation kai.scheduler/topology on workloads"
	case "ProvisioningRequestConfig":
		return "Muster's pods that wait are what a cluster autoscaler looks at"
	case "Workload":
		return "nothing: the podgrouper makes a PodGroup of each workload"
	}
	return ""
}

// unknown are the paths of fields of an object that t does not have, in order. What is not below t's fields is nobody's: apiVersion, kind,
// metadata and status.
func unknown(t reflect.Type, value any, path string) (out []string) {
	switch v := value.(type) {
	case map[string]any:
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[Note]().PkgPath() {
			return nil // a map, or a type of Kubernetes' own
		}
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			fields[tag(t.Field(i))] = t.Field(i).Type
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner, known := fields[name]
			switch {
			case path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name):
			case !known:
				out = append(out, path+brief(name))
			default:
				out = append(out, unknown(inner, v[name], path+name+".")...)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range v {
			out = append(out, unknown(t.Elem(), item, fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i))...)
		}
	}
	return out
}

// jsonType is what JSON calls a type.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.String, reflect.Bool:
		return t.Kind().String()
	}
	return "number"
}

func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// called is how an object is named: kind, namespace if it has one, name.
func called(kind, namespace, name string) string {
	if name == "" {
		name = "(no name)"
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return brief(kind) + " " + brief(name)
}

// brief is a text of somebody else's, bounded and on one line.
func brief(text string) string {
	const most = 253
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(clean) > most {
		return strings.ToValidUTF8(clean[:most], "") + "…"
	}
	return clean
}
