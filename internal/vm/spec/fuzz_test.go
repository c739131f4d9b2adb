package spec

import (
	"encoding/xml"
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzAnnotations: no value of any annotation makes Judge fail otherwise than by problems that name pod and field. What is taken is in the
// bounds that the other parts rely on.
func FuzzAnnotations(f *testing.F) {
	keys := make([]string, 0, len(Annotations()))
	for _, a := range Annotations() {
		keys = append(keys, a.Key)
	}
	for i, value := range []string{"1", "true", "host-model", "secret/s", "secret/s/k", "{a: [1]}", "1e999999999", "10Gi", "-0", "\x00", "configmap/../x", "#!/bin/sh", "ü", strings.Repeat("9", 40)} {
		f.Add(uint8(i), value, uint8(i*7), "x", []byte("#!/bin/sh"))
	}
	for i, key := range keys {
		if key == KeyRootVolumeSize {
			f.Add(uint8(i), "1e99", uint8(i), "9999999999999999999999Ei", []byte(nil))
		}
	}
	f.Fuzz(func(t *testing.T, one uint8, a string, two uint8, b string, data []byte) {
		keyA, keyB := keys[int(one)%len(keys)], keys[int(two)%len(keys)]
		sources := Sources{{Secret, "s"}: {"k": data, "k_path": []byte(a), "k_encoding": []byte(b)}}
		s, err := Judge(Input{Sandbox: pod(keyB, b, keyA, a), Container: container(), Sources: sources})
		if err != nil {
			var all Problems
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("%v holds no problems", err)
			}
			for _, p := range all {
				if p.Pod != "team/web" || p.Field == "" || p.Rule == "" || len(p.Value) > maxShown+3 || strings.ContainsAny(p.Error(), "\n\r\x00") {
					t.Errorf("problem %+v", p)
				}
				if !slices.ContainsFunc(keys, func(k string) bool { return p.Field == k }) {
					t.Errorf("problem %q is of none of the keys", p.Error())
				}
			}
			return
		}
		if r := s.Resources; r.VCPUs < 1 || r.VCPUs > 255 || r.Memory < 1<<20 {
			t.Errorf("resources %+v", r)
		}
		m := s.Machine
		if !slices.Contains([]DiskDriver{SCSI, VirtIO, NVMe}, m.DiskDriver) || m.RootSize < 0 || m.UUID != "" && len(m.UUID) != 36 {
			t.Errorf("machine %+v", m)
		}
		if err := xml.EscapeText(&strings.Builder{}, []byte(m.CPUModel)); err != nil || strings.ContainsAny(m.CPUModel, "<>&\"' ") {
			t.Errorf("CPU model %q", m.CPUModel)
		}
		for _, file := range s.Files {
			if !absolute(file.Path) {
				t.Errorf("file %q", file.Path)
			}
		}
	})
}
