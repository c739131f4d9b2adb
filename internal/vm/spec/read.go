package spec

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Wanted are the data sources that a sandbox's annotations name, sorted, each once. A name that is not well formed is left out: Judge says
// so. The caller reads those that the pod mounts, and no others.
func Wanted(sandbox *runtimeapi.PodSandboxConfig) []Source {
	seen := map[Source]bool{}
	for _, key := range []string{KeyUserDataSource, KeySSHKeySource, KeyFiles} {
		if source, _, err := parseSource(sandbox.GetAnnotations()[key], key == KeySSHKeySource); err == nil {
			seen[source] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Source) int { return strings.Compare(a.String(), b.String()) })
}

// annotations reads all annotations. Resources that depend on the container are there already.
func (j *judgement) annotations(s *Spec, in Input) {
	r := reader{j: j, a: in.Sandbox.GetAnnotations(), sources: in.Sources, sourced: in.Container != nil}
	for _, key := range slices.Sorted(maps.Keys(r.a)) {
		value := r.a[key]
		if strings.HasPrefix(key, Own) && !slices.ContainsFunc(Annotations(), func(a Annotation) bool { return a.Key == key }) {
			j.bad(Short(key), value, "there is no such annotation")
		}
		if len(value) > maxText {
			j.bad(Short(key), value, "must be at most %d bytes", maxText)
			return // nothing so large is looked at
		}
	}
	s.Resources.VCPUs = r.vcpus(in.Node.MaxVCPUs)
	s.Machine = Machine{
		UUID:       r.uuid(),
		DiskDriver: DiskDriver(r.oneOf(KeyDiskDriver, string(SCSI), string(VirtIO), string(NVMe))),
		Network:    NetworkDevice(r.oneOf(KeyNetworkDevice, string(NetworkVirtIO), string(NetworkE1000), string(NetworkE1000E))),
		CPUModel:   r.cpuModel(in.Node.CPUModel),
		RootSize:   r.rootSize(in.Node.MaxRootSize),
		VNC:        r.boolean(OwnVNC),
		Suspend:    r.oneOf(OwnOnStop, "shutdown", "suspend") == "suspend",
	}
	if text := r.a[KeyCPUSetting]; text != "" {
		memory := s.Resources.Memory
		if in.Container == nil {
			memory = 0 // the container's limit will say
		}
		cpu, err := ParseCPU(text, s.Resources.VCPUs, memory)
		if err != nil {
			j.bad(KeyCPUSetting, text, "%v", err)
		}
		s.Machine.CPU = cpu
	}
	r.boolean(KeyChownMounts)
	s.CloudInit = r.cloudInit()
	s.Files = r.files()
}

// reader reads annotations. A value that is wrong is a problem, and reads as the default.
type reader struct {
	j       *judgement
	a       map[string]string
	sources Sources
	// sourced says that sources are there to be read; without a container they are not.
	sourced bool
}

// oneOf is a value of a list, of which the first is the default.
func (r reader) oneOf(key string, allowed ...string) string {
	v := r.a[key]
	if v == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, v) {
		r.j.bad(key, v, "must be %s", alternatives(allowed))
		return allowed[0]
	}
	return v
}

func (r reader) boolean(key string) bool {
	return r.oneOf(key, "false", "true") == "true"
}

func (r reader) vcpus(most int) int {
	v := r.a[KeyVCPUCount]
	if v == "" {
		return 1
	}
	n, err := strconv.Atoi(v)
	if err != nil || n > most {
		r.j.bad(KeyVCPUCount, v, "must be a whole number, at most %d", most)
		return 1
	}
	return max(n, 1)
}

func (r reader) cpuModel(ofNode string) string {
	virtlet, own := r.a[KeyCPUModel], r.a[OwnCPUModel]
	switch {
	case virtlet != "" && virtlet != HostModel:
		r.j.bad(KeyCPUModel, virtlet, "must be %s; %s takes others", HostModel, OwnCPUModel)
	case own != "" && !cpuName.MatchString(own):
		r.j.bad(OwnCPUModel, own, "must be %s, %s, %s or the name of a model", HostModel, HostPassthrough, Maximum)
	case own != "" && virtlet != "" && own != virtlet:
		r.j.bad(OwnCPUModel, own, "must not differ from %s, %q", KeyCPUModel, virtlet)
	}
	for _, v := range []string{own, virtlet} {
		if v != "" {
			return v
		}
	}
	return ofNode
}

func (r reader) uuid() string {
	v := r.a[KeySystemUUID]
	if v == "" {
		return ""
	}
	u, ok := ParseUUID(v)
	if !ok || strings.Trim(u, "0-") == "" {
		r.j.bad(KeySystemUUID, v, "must be a UUID other than zero: 32 hexadecimal digits, with or without hyphens")
		return ""
	}
	return u
}

// ParseUUID reads 32 hexadecimal digits, with hyphens where RFC 4122 has them or without any, and writes them in lower case with hyphens.
func ParseUUID(s string) (string, bool) {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 {
		return "", false
	}
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
}

// quantity leaves out exponents whose number would fill the memory.
var quantity = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]{1,2})?$`)

func (r reader) rootSize(most int64) int64 {
	v := r.a[KeyRootVolumeSize]
	if v == "" {
		return 0
	}
	size := int64(-1)
	if quantity.MatchString(v) {
		if q, err := resource.ParseQuantity(v); err == nil && q.Cmp(*resource.NewQuantity(q.Value(), resource.BinarySI)) == 0 {
			size = q.Value()
		}
	}
	switch {
	case size < 0:
		r.j.bad(KeyRootVolumeSize, v, "must be a whole number of bytes as a quantity, such as 10Gi")
		return 0
	case most > 0 && size > most:
		r.j.bad(KeyRootVolumeSize, v, "must be at most %d bytes on this node", most)
	}
	return size
}

func (r reader) cloudInit() CloudInit {
	c := CloudInit{Type: NoCloud, ForceDHCP: r.boolean(KeyForceDHCP), Script: r.a[KeyUserDataScript]}
	switch v := strings.ToLower(r.a[KeyImageType]); ImageType(v) {
	case "", NoCloud:
	case ConfigDrive:
		c.Type = ConfigDrive
	default:
		r.j.bad(KeyImageType, r.a[KeyImageType], "must be %s or %s", NoCloud, ConfigDrive)
	}
	c.MetaData = r.yamlMap(KeyMetaData)
	overwrite := r.boolean(KeyUserDataOverwrite)
	fromSource, script := r.userDataSource()
	if script != "" {
		c.Script = script
	}
	c.UserData = r.yamlMap(KeyUserData)
	if !overwrite || r.a[KeyUserData] == "" {
		c.UserData = Merge(fromSource, c.UserData)
	}
	if own := r.a[KeySSHKeys]; own == "" || !overwrite {
		c.SSHKeys = r.sshKeySource()
	}
	c.SSHKeys = append(c.SSHKeys, lines(r.a[KeySSHKeys])...)
	for _, key := range c.SSHKeys {
		if !plain(key) {
			r.j.bad(KeySSHKeys, "", "a key must be one line without control characters")
			break
		}
	}
	return c
}

func (r reader) yamlMap(key string) map[string]any {
	m, err := ParseYAMLMap([]byte(r.a[key]))
	if err != nil {
		r.j.bad(key, r.a[key], "%s", Short(err.Error()))
	}
	return m
}

// userDataSource gives the source as a map, or, where a key of it is asked for, that key's value as a script.
func (r reader) userDataSource() (map[string]any, string) {
	encoding := r.oneOf(KeyUserDataEncoding, "plain", "base64")
	key := r.a[KeyUserDataSourceKey]
	data, source := r.source(KeyUserDataSource)
	if data == nil {
		if key != "" && r.a[KeyUserDataSource] == "" {
			r.j.bad(KeyUserDataSourceKey, key, "needs %s, which is not set", KeyUserDataSource)
		}
		return nil, ""
	}
	if key != "" {
		value, ok := data[key]
		if !ok {
			r.j.bad(KeyUserDataSourceKey, key, "%s has no such key", source)
			return nil, ""
		}
		if encoding == "base64" {
			decoded, err := decode64(value)
			if err != nil {
				r.j.bad(KeyUserDataSourceKey, key, "the value of this key of %s must be base64", source)
			}
			value = decoded
		}
		return nil, string(value)
	}
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.HasPrefix(string(data[key]), "#!") {
			out[key] = string(data[key])
			continue
		}
		v, err := ParseYAML(data[key])
		if err != nil { // not its text: that can quote what the Secret holds
			r.j.bad(KeyUserDataSource, source.String(), "the value of key %q must be YAML, in the bounds of user-data", Short(key))
			continue
		}
		out[key] = v
	}
	return out, ""
}

func (r reader) sshKeySource() []string {
	data, source := r.source(KeySSHKeySource)
	if data == nil {
		return nil
	}
	_, key, _ := parseSource(r.a[KeySSHKeySource], true)
	if key == "" {
		key = "authorized_keys"
	}
	value, ok := data[key]
	if !ok {
		r.j.bad(KeySSHKeySource, r.a[KeySSHKeySource], "%s has no key %q", source, Short(key))
	}
	return lines(string(value))
}

// files reads the entries X, X_path, X_encoding of a data source.
func (r reader) files() []File {
	data, source := r.source(KeyFiles)
	var out []File
	taken := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if attribute(data, key) {
			continue
		}
		bad := func(rule string, args ...any) { r.j.bad(KeyFiles, source.String()+" key "+Short(key), rule, args...) }
		where, ok := data[key+"_path"]
		if !ok {
			bad("has no %q beside it", Short(key)+"_path")
			continue
		}
		f := File{Path: string(where), Content: data[key]}
		if !absolute(f.Path) || path.Clean(f.Path) == "/" {
			bad("%q must be an absolute path, without '..' and control characters", Short(key)+"_path")
			continue
		}
		f.Path = path.Clean(f.Path)
		if taken[f.Path] {
			bad("its path is another entry's too")
		}
		taken[f.Path] = true
		switch encoding := string(data[key+"_encoding"]); encoding {
		case "plain":
		case "", "base64":
			decoded, err := decode64(f.Content)
			if err != nil {
				bad("must be base64, or %q must be plain", Short(key)+"_encoding")
			}
			f.Content = decoded
		default:
			bad("%q must be plain or base64", Short(key)+"_encoding")
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// attribute says that a key tells about another entry.
func attribute(data map[string][]byte, key string) bool {
	for _, suffix := range []string{"_path", "_encoding"} {
		if entry, ok := strings.CutSuffix(key, suffix); ok {
			if _, ok := data[entry]; ok {
				return true
			}
		}
	}
	return false
}

// source is the data that an annotation names, or nil where it names none, nothing well formed, or nothing that the pod was given.
func (r reader) source(key string) (map[string][]byte, Source) {
	v := r.a[key]
	if v == "" {
		return nil, Source{}
	}
	source, _, err := parseSource(v, key == KeySSHKeySource)
	if err != nil {
		r.j.bad(key, v, "%v", err)
		return nil, source
	}
	data, ok := r.sources[source]
	if !ok && r.sourced {
		r.j.bad(key, v, "the pod must mount this %s: a machine is told only what its pod can read", source.Kind)
	}
	if !ok || !r.sourced {
		return nil, source
	}
	if data == nil {
		data = map[string][]byte{}
	}
	return data, source
}

// parseSource reads kind/name, and kind/name/key where a key may follow.
func parseSource(v string, keyed bool) (Source, string, error) {
	parts := strings.Split(v, "/")
	rule := errors.New("must be configmap/NAME or secret/NAME")
	if keyed {
		rule = errors.New("must be configmap/NAME or secret/NAME, and may have a third part, /KEY")
	}
	if len(parts) != 2 && (!keyed || len(parts) != 3) {
		return Source{}, "", rule
	}
	source := Source{Kind: SourceKind(strings.ToLower(parts[0])), Name: parts[1]}
	if source.Kind != ConfigMap && source.Kind != Secret || !objectName.MatchString(source.Name) {
		return Source{}, "", rule
	}
	if len(parts) == 3 {
		return source, parts[2], nil
	}
	return source, "", nil
}

func decode64(b []byte) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(b)), ""))
}

// lines are the lines of a text that are not blank, without what surrounds them.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func itoa[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
