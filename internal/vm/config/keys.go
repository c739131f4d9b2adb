package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Key is one of Virtlet's settings.
type Key struct {
	// Field is its name in files and in VirtletConfigMapping objects.
	Field string
	// Flag and Env are its other names; "" where Virtlet has none.
	Flag, Env string
	// Own is the flag of muster-vm up that means the same; "" where there is none by itself.
	Own string
	// Without says why the key has no effect; "" for one that is taken.
	Without string
	// Switch says that it is a boolean: its flag may stand without a value.
	Switch bool

	rule rule
	// own translates a value into that of Own, and back; nil where they are the same.
	own, back map[string]string
}

// rule judges a value and gives it in its usual form.
type rule func(string) (string, error)

// Keys are all of Virtlet's settings, in the order in which they are shown.
func Keys() []Key {
	return []Key{
		{Field: "fdServerSocketPath", Flag: "fd-server-socket-path", Env: "VIRTLET_FD_SERVER_SOCKET_PATH", rule: socket, Without: "the socket is DIR/net.sock: it belongs to one node process, and its path reaches the wrapper with each machine"},
		{Field: "databasePath", Flag: "database-path", Env: "VIRTLET_DATABASE_PATH", rule: absolute, Without: "records, images and disks name each other and lie below one folder, --dir; Virtlet's database is not read"},
		{Field: "downloadProtocol", Flag: "image-download-protocol", Env: "VIRTLET_DOWNLOAD_PROTOCOL", Own: "image-download-protocol", rule: oneOf("http", "https")},
		{Field: "imageDir", Flag: "image-dir", Env: "VIRTLET_IMAGE_DIR", rule: absolute, Without: "records, images and disks name each other and lie below one folder, --dir"},
		{Field: "imageTranslationConfigsDir", Flag: "image-translation-configs-dir", Env: "VIRTLET_IMAGE_TRANSLATIONS_DIR", Own: "translation-dir", rule: absolute},
		{Field: "skipImageTranslation", Own: "skip-image-translation", rule: boolean, Switch: true},
		{Field: "libvirtURI", Flag: "libvirt-uri", Env: "VIRTLET_LIBVIRT_URI", Own: "libvirt-uri", rule: filled},
		{Field: "rawDevices", Flag: "raw-devices", Env: "VIRTLET_RAW_DEVICES", Own: "raw-devices", rule: patterns},
		{Field: "criSocketPath", Flag: "listen", Env: "VIRTLET_CRI_SOCKET_PATH", Own: "cri", rule: socket},
		{Field: "disableLogging", Flag: "disable-logging", Env: "VIRTLET_DISABLE_LOGGING", rule: boolean, Switch: true, Without: "the kubelet says whether a container has a log: a pod without a log path has none"},
		{
			Field: "disableKVM", Flag: "disable-kvm", Env: "VIRTLET_DISABLE_KVM", Own: "domain-type", rule: boolean, Switch: true,
			own: map[string]string{"true": "qemu", "false": "kvm"}, back: map[string]string{"qemu": "true", "kvm": "false"},
		},
		{Field: "enableSriov", Flag: "enable-sriov", Env: "VIRTLET_SRIOV_SUPPORT", rule: boolean, Switch: true, Without: "virtual functions are passed through where CNI or a device plugin gives them to a pod, without a setting"},
		{Field: "cniPluginDir", Flag: "cni-bin-dir", Env: "VIRTLET_CNI_PLUGIN_DIR", Own: "cni-bin-dir", rule: absolute},
		{Field: "cniConfigDir", Flag: "cni-conf-dir", Env: "VIRTLET_CNI_CONFIG_DIR", Own: "cni-conf-dir", rule: absolute},
		{Field: "calicoSubnetSize", Flag: "calico-subnet-size", Env: "VIRTLET_CALICO_SUBNET", rule: number(0, 32), Without: "a guest gets Calico's address as it is, with an on-link route to its gateway: no subnet is made up"},
		{Field: "enableRegexpImageTranslation", Flag: "enable-regexp-image-translation", Env: "IMAGE_REGEXP_TRANSLATION", Own: "enable-regexp-image-translation", rule: boolean, Switch: true},
		{Field: "cpuModel", Flag: "cpu-model", Env: "VIRTLET_CPU_MODEL", Own: "cpu-model", rule: oneOf("", "host-model")},
		{Field: "streamPort", Flag: "stream-port", Env: "VIRTLET_STREAM_PORT", Own: "stream-port", rule: number(0, 65535)},
		{Field: "kubeletRootDir", Flag: "kubelet-root-dir", Env: "KUBELET_ROOT_DIR", Own: "kubelet-pods-dir", rule: absolute},
		{Field: "logLevel", Flag: "v", Env: "VIRTLET_LOGLEVEL", Own: "v", rule: number(0, 10)},
	}
}

// ToOwn gives a value as the key's own flag takes it.
func (k Key) ToOwn(text string) string { return through(k.own, text) }

// FromOwn gives the value of the key's own flag as the key has it.
func (k Key) FromOwn(text string) string { return through(k.back, text) }

func through(m map[string]string, text string) string {
	if out, ok := m[text]; ok {
		return out
	}
	return text
}

// maxValue bounds a value, in bytes.
const maxValue = 4096

func absolute(s string) (string, error) {
	if !path.IsAbs(s) || path.Clean(s) != s && path.Clean(s)+"/" != s || control(s) {
		return "", errors.New("must be an absolute path, without '..' and control characters")
	}
	return path.Clean(s), nil
}

func socket(s string) (string, error) {
	if len(s) > 107 {
		return "", fmt.Errorf("has %d bytes; a socket's path has at most 107", len(s))
	}
	return absolute(s)
}

func filled(s string) (string, error) {
	if s == "" || control(s) {
		return "", errors.New("must not be empty, and without control characters")
	}
	return s, nil
}

func control(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// boolean takes what people write. Virtlet took every text but none for true, "false" and "0" too.
func boolean(s string) (string, error) {
	switch strings.ToLower(s) {
	case "1", "t", "true", "y", "yes", "on":
		return "true", nil
	case "0", "f", "false", "n", "no", "off":
		return "false", nil
	}
	return "", errors.New("must be true or false (or 1, t, y, yes, on; 0, f, n, no, off)")
}

func number(low, high int) rule {
	return func(s string) (string, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return "", fmt.Errorf("must be a number from %d to %d", low, high)
		}
		return strconv.Itoa(n), nil
	}
}

func oneOf(allowed ...string) rule {
	return func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("must be one of %q", allowed)
		}
		return s, nil
	}
}

// patterns is a list of names below /dev: path.Match's patterns, with commas between; an empty one lets no device.
func patterns(s string) (string, error) {
	for p := range strings.SplitSeq(s, ",") {
		if _, err := path.Match(p, "x"); err != nil || path.IsAbs(p) || strings.Contains("/"+p+"/", "/../") || control(p) {
			return "", fmt.Errorf("pattern %.128q: must be a pattern of names below /dev, such as loop*", p)
		}
	}
	return s, nil
}
