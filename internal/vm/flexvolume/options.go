package flexvolume

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names that kubelets, Virtlet and manifests know the driver by.
const (
	// Driver is what a volume names.
	Driver = "virtlet/flexvolume_driver"
	// DirName is the driver's directory among a pod's volumes.
	DirName = "virtlet~flexvolume_driver"
	// FileName is the file that holds a volume's options.
	FileName = "virtlet-flexvolume.json"
)

// Type is what a volume's disk is.
type Type string

// The types.
const (
	QCOW2 Type = "qcow2"
	Raw   Type = "raw"
	Ceph  Type = "ceph"
)

// MaxOptions bounds a volume's options, in bytes of JSON.
const MaxOptions = 64 << 10

const (
	maxPartition    = 128
	defaultCapacity = 1024 * 1000 * 1000 // 1024 MB, in libvirt's units
	secretRefKey    = "kubernetes.io/secret/secret"
	ofKubelet       = "kubernetes.io/"
	keyUUID         = "uuid"
)

// Volume is what a volume's options say.
type Volume struct {
	Type Type
	// UUID is new with each mount; it may be empty before the first.
	UUID string
	// Capacity is a QCOW2 volume's size in bytes, at least 1.
	Capacity int64
	// Path is a Raw volume's device: clean, below /dev.
	Path string
	// Ceph is set for that type only.
	Ceph *CephVolume
	// Partition is 0 for the whole disk, or the partition that is mounted where the volume is.
	Partition int
	// ReadOnly is what the pod says of the volume.
	ReadOnly bool
}

// CephVolume is a volume of a Ceph cluster.
type CephVolume struct {
	Monitors    []Monitor
	Pool, Image string
	// User and Key go together, or are both empty. The key is not for logs, nor for any disk.
	User string
	Key  []byte
}

// Monitor is a Ceph monitor's address.
type Monitor struct {
	Host string
	Port int
}

var (
	options = map[Type][]string{
		QCOW2: {"capacity"}, Raw: {"path"}, Ceph: {"monitor", "pool", "volume", "user", "secret", "protocol"},
	}
	capacity = regexp.MustCompile(`^\s*([0-9]{1,19})\s*([A-Za-z]*)\s*$`)
	cephName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// Parse judges a volume's options, a JSON object of strings. The error names every option that is wrong, and its rule; it never tells a key.
func Parse(text []byte) (Volume, error) {
	o, err := object(text)
	if err != nil {
		return Volume{}, err
	}
	return judge(o)
}

// object reads a JSON object of strings.
func object(text []byte) (map[string]string, error) {
	if len(text) > MaxOptions {
		return nil, fmt.Errorf("options: must be at most %d bytes, are %d", MaxOptions, len(text))
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil || values == nil { // not its text, which can quote a key
		return nil, errors.New("options: must be a JSON object")
	}
	o := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		s, ok := values[key].(string)
		if !ok {
			return nil, fmt.Errorf("option %s: must be a string", short(key))
		}
		o[key] = s
	}
	return o, nil
}

func judge(o map[string]string) (Volume, error) {
	j := judgement{o: o}
	v := Volume{Type: Type(o["type"]), UUID: o[keyUUID], Partition: j.partition(), ReadOnly: o["kubernetes.io/readwrite"] == "ro"}
	own, ok := options[v.Type]
	if !ok {
		j.bad("type", "must be qcow2, raw or ceph")
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if ok && !strings.HasPrefix(key, ofKubelet) && !slices.Contains([]string{"type", "part", keyUUID}, key) && !slices.Contains(own, key) {
			j.errs = append(j.errs, fmt.Errorf("option %s: a volume of type %s has no such option", short(key), v.Type))
		}
	}
	switch v.Type {
	case QCOW2:
		v.Capacity = j.capacity()
	case Raw:
		v.Path = o["path"]
		if !strings.HasPrefix(v.Path, "/dev/") || path.Clean(v.Path) != v.Path || !plain(v.Path) {
			j.bad("path", "must be a path below /dev, without '..'")
		}
	case Ceph:
		v.Ceph = j.ceph()
	}
	if err := errors.Join(j.errs...); err != nil {
		return Volume{}, &OptionsError{errs: j.errs}
	}
	return v, nil
}

// OptionsError holds everything that is wrong with a volume's options.
type OptionsError struct{ errs []error }

func (e *OptionsError) Error() string {
	var lines []string
	for _, err := range e.errs {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "; ")
}

type judgement struct {
	o    map[string]string
	errs []error
}

// bad says that an option's value breaks a rule. No value of a key is told.
func (j *judgement) bad(key, rule string) {
	value := j.o[key]
	switch {
	case key == "secret":
		j.errs = append(j.errs, fmt.Errorf("option %s: %s", key, rule))
	default:
		j.errs = append(j.errs, fmt.Errorf("option %s %s: %s", key, strconv.Quote(short(value)), rule))
	}
}

func (j *judgement) partition() int {
	v := j.o["part"]
	if v == "" {
		return 1
	}
	n, err := strconv.ParseUint(v, 10, 8)
	if err != nil || n > maxPartition {
		j.bad("part", fmt.Sprintf("must be a partition's number, 0 to %d; 0 is the whole disk", maxPartition))
	}
	return int(n)
}

// capacity reads libvirt's scaled integers: https://libvirt.org/formatstorage.html (capacity).
func (j *judgement) capacity() int64 {
	v := j.o["capacity"]
	if strings.TrimSpace(v) == "" {
		return defaultCapacity
	}
	m := capacity.FindStringSubmatch(v)
	if m == nil {
		j.bad("capacity", "must be a positive whole number with a unit of libvirt's, such as 10GiB")
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	factor, ok := unit(m[2])
	if err != nil || !ok || n <= 0 || n > math.MaxInt64/factor {
		j.bad("capacity", "must be a positive whole number with a unit of libvirt's, such as 10GiB")
		return 0
	}
	return n * factor
}

// unit is a unit of libvirt's, in bytes: none, B and bytes are 1; K and KiB are 1024, KB is 1000; and so on to E.
func unit(s string) (int64, bool) {
	s = strings.ToLower(s)
	if s == "" || s == "b" || s == "byte" || s == "bytes" {
		return 1, true
	}
	power := strings.IndexByte("kmgtpe", s[0]) + 1
	base := int64(1024)
	switch s[1:] {
	case "", "ib":
	case "b":
		base = 1000
	default:
		return 0, false
	}
	n := int64(1)
	for range power {
		n *= base
	}
	return n, power > 0
}

func (j *judgement) ceph() *CephVolume {
	c := &CephVolume{Pool: j.o["pool"], Image: j.o["volume"], User: j.o["user"]}
	for _, name := range []string{"pool", "volume"} {
		if !cephName.MatchString(j.o[name]) {
			j.bad(name, "must be 1 to 96 letters, digits, '.', '_' and '-'")
		}
	}
	if p := j.o["protocol"]; p != "" && p != "rbd" {
		j.bad("protocol", "must be rbd")
	}
	monitors := strings.Split(j.o["monitor"], ",")
	if len(monitors) > 16 {
		j.bad("monitor", "must be at most 16")
		monitors = nil
	}
	for _, m := range monitors {
		host, port, err := net.SplitHostPort(strings.TrimSpace(m))
		n, notNumber := strconv.ParseUint(port, 10, 16)
		if err != nil || notNumber != nil || n == 0 || !hostName.MatchString(host) && net.ParseIP(host) == nil {
			j.bad("monitor", "must be HOST:PORT, or several with commas between")
			break
		}
		c.Monitors = append(c.Monitors, Monitor{Host: host, Port: int(n)})
	}
	key, given := j.o["secret"]
	if fromRef, ok := j.o[secretRefKey]; ok && !given {
		decoded, err := base64.StdEncoding.DecodeString(fromRef)
		if err != nil {
			j.bad("secret", "what the kubelet gives of secretRef must be base64")
		}
		key, given = strings.TrimSpace(string(decoded)), true
	}
	if (c.User != "") != (given && key != "") {
		j.bad("secret", "user and secret must be set together")
	}
	if c.User != "" && !cephName.MatchString(c.User) {
		j.bad("user", "must be 1 to 96 letters, digits, '.', '_' and '-'")
	}
	if key != "" {
		decoded, err := base64.StdEncoding.DecodeString(key)
		if err != nil || len(decoded) == 0 || len(decoded) > 4096 {
			j.bad("secret", "must be the user's key in base64")
		}
		c.Key = decoded
	}
	return c
}

func plain(s string) bool {
	return utf8.ValidString(s) && len(s) < 4096 && !strings.ContainsFunc(s, unicode.IsControl)
}

// short is a text that can stand in an event: one line, not long.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
