package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Mapping says where images of a node come from: one of Virtlet's translation files, or the spec of a VirtletImageMapping. Fields and their
// names are Virtlet's.
type Mapping struct {
	// Name is the file's or the object's, for order and for errors.
	Name string `json:"-"`
	// Prefix, if not empty, is the first components of the names that this mapping is about. Rules see what follows "PREFIX/".
	Prefix string `json:"prefix,omitempty"`
	// Translations are the rules; the first that matches counts.
	Translations []Rule `json:"translations,omitempty"`
	// Transports are profiles by name. The one of the empty name is for rules that name none.
	Transports map[string]Transport `json:"transports,omitempty"`
}

// Rule translates names to a URL.
type Rule struct {
	// Name is the whole name, without tag and digest. Exactly one of Name and Regexp is given.
	Name string `json:"name,omitempty"`
	// Regexp matches whole names (Go's syntax, as if it stood between ^ and $; Virtlet's matched parts too).
	Regexp string `json:"regexp,omitempty"`
	// URL is where the disk is: https://, http://, oci:// with a registry's reference, or without a scheme, which is then the download protocol.
	// It may hold credentials. $1 and ${name} stand for groups of the regexp.
	URL string `json:"url"`
	// Transport names a profile. One that does not exist is as if all its fields were absent.
	Transport string `json:"transport,omitempty"`
}

// Transport is how to ask for a URL.
type Transport struct {
	// TimeoutMilliseconds bounds one request with its body; 0 and less: no bound.
	TimeoutMilliseconds int `json:"timeout,omitempty"`
	// MaxRedirects bounds the redirects that are followed; absent: 9, so that ten requests are made.
	MaxRedirects *int `json:"maxRedirects,omitempty"`
	// Proxy is a URL of scheme http, https or socks5. Empty: what the process's environment says.
	Proxy string `json:"proxy,omitempty"`
	// TLS is absent for the system's.
	TLS *TLS `json:"tls,omitempty"`
}

// TLS is how a server is to be known, and how it knows the node.
type TLS struct {
	// Certificates of authorities, trusted beside the system's, and the node's own, which have keys.
	Certificates []Certificate `json:"certificates,omitempty"`
	// ServerName is whom the server's certificate has to be for, if not for the URL's host.
	ServerName string `json:"serverName,omitempty"`
	// Insecure takes any certificate.
	Insecure bool `json:"insecure,omitempty"`
}

// Certificate is PEM.
type Certificate struct {
	Cert string `json:"cert"`
	Key  string `json:"key,omitempty"`
}

// Bounds of mappings. They are far above what people write, and keep a mistake from costing more than an error.
const (
	maxMappingBytes = 1 << 20
	maxMappingFiles = 1000
	maxRules        = 10000
	maxRegexp       = 4096
)

// ParseMapping reads one of Virtlet's translation files. Unknown fields are errors; all errors of the file come at once.
func ParseMapping(name string, data []byte) (Mapping, error) {
	if len(data) > maxMappingBytes {
		return Mapping{}, vm.Errorf(vm.Invalid, "image translations %s: must have at most %d bytes", quote(name), maxMappingBytes)
	}
	var m Mapping
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return Mapping{}, vm.Errorf(vm.Invalid, "image translations %s: %s", quote(name), strings.ReplaceAll(err.Error(), "\n", " "))
	}
	m.Name = name
	return m, m.Validate()
}

// Validate gives all errors of a mapping at once, each naming mapping, field and rule.
func (m Mapping) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, vm.Errorf(vm.Invalid, "image translations %s: %s: %s", quote(m.Name), field, fmt.Sprintf(format, args...)))
	}
	if len(m.Translations) > maxRules {
		bad("translations", "must be at most %d, are %d", maxRules, len(m.Translations))
		return errors.Join(errs...)
	}
	for i, rule := range m.Translations {
		field := fmt.Sprintf("translations[%d]", i)
		if (rule.Name == "") == (rule.Regexp == "") {
			bad(field, "must have either name or regexp")
		}
		if rule.URL == "" {
			bad(field+".url", "must not be empty")
		} else if scheme, _, ok := strings.Cut(rule.URL, "://"); ok && !slices.Contains([]string{schemeHTTP, schemeHTTPS, schemeOCI}, scheme) {
			bad(field+".url", "its scheme must be https, http or oci")
		}
		if rule.Regexp != "" {
			if _, err := rule.compile(); err != nil {
				bad(field+".regexp", "%v", err)
			}
		}
	}
	for name, transport := range m.Transports {
		for _, err := range transport.validate() {
			bad(fmt.Sprintf("transports[%s].%s", name, err.field), "%s", err.rule)
		}
	}
	return errors.Join(errs...)
}

func (r Rule) compile() (*regexp.Regexp, error) {
	if len(r.Regexp) > maxRegexp {
		return nil, fmt.Errorf("must have at most %d characters", maxRegexp)
	}
	return regexp.Compile(`^(?:` + r.Regexp + `)$`)
}

// readMappings reads the files *.yaml and *.yml of a folder, in the order of their names. What cannot be read is an error of its own, and
// takes nothing from the others. A folder that does not exist holds none.
func readMappings(dir string) ([]Mapping, []error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("image translations: %w", err)}
	}
	var (
		mappings []Mapping
		errs     []error
	)
	for _, entry := range entries { // in the order of names
		if ext := filepath.Ext(entry.Name()); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		if len(mappings)+len(errs) >= maxMappingFiles {
			return mappings, append(errs, vm.Errorf(vm.Invalid, "image translations: folder %s: must hold at most %d files", quote(dir), maxMappingFiles))
		}
		data, err := readBounded(filepath.Join(dir, entry.Name()), maxMappingBytes+1)
		if err == nil {
			var m Mapping
			if m, err = ParseMapping(entry.Name(), data); err == nil {
				mappings = append(mappings, m)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return mappings, errs
}

func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name) // a ConfigMap's files are links
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, vm.Errorf(vm.Invalid, "%s: must be a regular file", quote(name))
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// translation is a rule that matched.
type translation struct {
	url       string
	transport Transport
	from      string // the mapping and the rule, for errors
}

// translate finds the rule for a name without tag and digest. Exact names of all mappings come before all regexps; within each, mappings
// count in their order, and rules in theirs.
func translate(mappings []Mapping, repository string, regexps bool) (translation, bool) {
	found := func(m Mapping, i int, url string) (translation, bool) {
		return translation{url: url, transport: m.Transports[m.Translations[i].Transport], from: fmt.Sprintf("image translations %s: translations[%d]", quote(m.Name), i)}, true
	}
	for _, exact := range []bool{true, false} {
		if !exact && !regexps {
			break
		}
		for _, m := range mappings {
			rest, ok := m.rest(repository)
			if !ok {
				continue
			}
			for i, rule := range m.Translations {
				if exact && rule.Name != "" && rule.Name == rest {
					return found(m, i, rule.URL)
				}
				if exact || rule.Regexp == "" {
					continue
				}
				re, err := rule.compile()
				if err != nil {
					continue // such a mapping never gets here
				}
				if match := re.FindStringSubmatchIndex(rest); match != nil {
					return found(m, i, string(re.ExpandString(nil, rule.URL, rest, match)))
				}
			}
		}
	}
	return translation{}, false
}

func (m Mapping) rest(repository string) (string, bool) {
	if m.Prefix == "" {
		return repository, true
	}
	return strings.CutPrefix(repository, strings.TrimSuffix(m.Prefix, "/")+"/")
}
