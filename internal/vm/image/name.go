package image

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Digest is "sha256:" and 64 lower-case hexadecimal digits.
type Digest string

const sha256Prefix = "sha256:"

// ParseDigest checks the form of a digest. Other algorithms are refused: the store knows one.
func ParseDigest(s string) (Digest, error) {
	hex, ok := strings.CutPrefix(s, sha256Prefix)
	if !ok || len(hex) != 64 || !isHex(hex) {
		return "", vm.Errorf(vm.Invalid, "digest %s: must be sha256: and 64 lower-case hexadecimal digits", quote(s))
	}
	return Digest(s), nil
}

// Hex is the digest without its algorithm.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), sha256Prefix) }

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// quote shows what a stranger wrote, cut to what a log line can bear.
func quote(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(`"`+strings.Map(printable, s)+`"`, "�")
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '�'
	}
	return r
}

// Name is an image's name, taken apart. The zero Name is no name.
type Name struct {
	// Repository is the name without tag and digest: "cirros", "registry.example/vm/tiny", or a whole URL. Virtlet's translations look at
	// this, so that a tag, which a kubelet adds to names without one, changes nothing for them.
	Repository string
	// Tag is "latest" where neither tag nor digest was given. URLs have none.
	Tag string
	// Digest is what was asked for with @: of the manifest for a registry, of the disk file for a URL. It may be empty.
	Digest Digest

	scheme string // of a name that is a URL: http, https or oci
}

// Parts of a name, as https://github.com/distribution/reference describes them.
const (
	nameComponent = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
	nameDomain    = `(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]{1,5})?`
	nameTag       = `[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}`
)

var (
	repositoryForm = regexp.MustCompile(`^(?:` + nameDomain + `/)?` + nameComponent + `(?:/` + nameComponent + `)*$`)
	tagForm        = regexp.MustCompile(`^` + nameTag + `$`)
)

// Longest name of a repository, as registries have it, and longest URL.
const (
	maxRepository = 255
	maxURL        = 2048
)

// prefixes say which runtime a name is for, where a proxy chooses runtimes by names. They are no part of the name.
var prefixes = []string{"muster-vm/", "virtlet.cloud/"}

// ParseName takes a name apart: a reference as kubelets and registries know them, with an optional prefix "muster-vm/" or "virtlet.cloud/"; or
// one with a scheme, "oci://", "https://" or "http://", which only clients without a kubelet can send. Errors are Invalid.
func ParseName(s string) (Name, error) {
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			s = rest
			break
		}
	}
	if _, err := ParseDigest(s); err == nil {
		return Name{}, vm.Errorf(vm.Invalid, "image name %s: a digest alone says not where the image comes from", quote(s))
	}
	name, rest := Name{}, s
	if at := strings.LastIndex(rest, "@"); at >= 0 && strings.HasPrefix(rest[at+1:], "sha") {
		digest, err := ParseDigest(rest[at+1:])
		if err != nil {
			return Name{}, vm.Errorf(vm.Invalid, "image name %s: %w", quote(s), err)
		}
		name.Digest, rest = digest, rest[:at]
	}
	if scheme, reference, ok := strings.Cut(rest, "://"); ok {
		name.scheme = scheme
		switch scheme {
		case schemeHTTP, schemeHTTPS:
			if rule := badURL(rest); rule != "" {
				return Name{}, vm.Errorf(vm.Invalid, "image name %s: %s", quote(s), rule)
			}
			name.Repository = rest
			return name, nil
		case schemeOCI:
			rest = reference
		default:
			return Name{}, vm.Errorf(vm.Invalid, "image name %s: its scheme must be https, http or oci", quote(s))
		}
	}
	if colon := strings.LastIndex(rest, ":"); colon > strings.LastIndex(rest, "/") {
		name.Tag, rest = rest[colon+1:], rest[:colon]
		if !tagForm.MatchString(name.Tag) {
			return Name{}, vm.Errorf(vm.Invalid, "image name %s: the tag must be letters, digits, '_', '.' and '-', at most 128, and start with one of the first three", quote(s))
		}
	}
	if len(rest) > maxRepository {
		return Name{}, vm.Errorf(vm.Invalid, "image name %s: without tag and digest it must have at most %d characters, has %d", quote(s), maxRepository, len(rest))
	}
	if !repositoryForm.MatchString(rest) {
		return Name{}, vm.Errorf(vm.Invalid, "image name %s: must be components of lower-case letters, digits and single separators, joined by '/', after an optional HOST[:PORT]/", quote(s))
	}
	if name.Tag == "" && name.Digest == "" {
		name.Tag = "latest"
	}
	if host, rest := splitHost(rest); rest != "" && isDocker(host) {
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
		name.Repository = dockerHost + "/" + rest
		return name, nil
	}
	name.Repository = rest
	return name, nil
}

// badURL gives the rule that a URL of a disk breaks, or nothing.
func badURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxURL:
		return "a URL must have at most 2048 characters"
	case err != nil || strings.ContainsFunc(s, func(r rune) bool { return printable(r) != r || r == ' ' }):
		return "it is no URL"
	case u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS:
		return "the URL's scheme must be https or http"
	case u.User != nil:
		return "a name may hold no credentials; those of a translation's URL may"
	case u.Hostname() == "":
		return "the URL has no host"
	case u.Fragment != "":
		return "the URL may have no fragment"
	}
	return ""
}

// splitHost takes the registry's host from a repository: its first component, if that has a dot or a port or is localhost.
func splitHost(repository string) (host, rest string) {
	first, rest, ok := strings.Cut(repository, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first) {
		return first, rest
	}
	return "", repository
}

const dockerHost = "docker.io"

func isDocker(host string) bool {
	return host == dockerHost || host == "index.docker.io" || host == "registry-1.docker.io"
}

func (n Name) isURL() bool { return n.scheme == schemeHTTP || n.scheme == schemeHTTPS }

// Tagged is the name as RepoTags has it: with its tag, or the URL. It is empty for a name that has a digest and no tag.
func (n Name) Tagged() string {
	switch {
	case n.isURL():
		return n.Repository
	case n.Tag == "":
		return ""
	}
	return n.Repository + ":" + n.Tag
}

// With is the name as RepoDigests has it.
func (n Name) With(d Digest) string { return n.Repository + "@" + string(d) }

// String is the whole name.
func (n Name) String() string {
	s := n.Tagged()
	if s == "" {
		s = n.Repository
	}
	if n.Digest != "" {
		s += "@" + string(n.Digest)
	}
	return s
}

// namesFile reports whether the name's last component looks like a disk's file, as Virtlet's users write names that are URLs.
func (n Name) namesFile() bool {
	switch path.Ext(n.Repository) {
	case ".qcow2", ".img", ".raw":
		return true
	}
	return false
}
