package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// unfit are characters that SPDX identifiers do not have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// bill is the image's bill of materials: the program, the Go modules that it says it is made of, the Go distribution, and packages.
func (r *recipe) bill(t *tree, info *debug.BuildInfo, packages []pkg, arch, program string) ([]byte, error) {
	body, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	at := t.made.Format("2006-01-02T15:04:05Z")
	doc := &spdx.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: r.name + "-" + t.version + "-" + arch,
		// A name, and no place: the same program has the same bill.
		DocumentNamespace: "https://spdx.org/spdxdocs/" + r.name + "-" + arch + "-" + hash,
		CreationInfo:      &spdx.CreationInfo{Created: at, Creators: []common.Creator{{Creator: "deploy/image/build", CreatorType: "Tool"}}},
	}
	id := func(kind, name string) common.ElementID {
		return common.ElementID(kind + "-" + unfit.ReplaceAllString(name, "-"))
	}
	relate := func(a common.ElementID, how string, b common.ElementID) {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(a)), Relationship: how, RefB: common.MakeDocElementID("", string(b)),
		})
	}
	main := id("Program", r.name)
	doc.Packages = append(doc.Packages, &spdx.Package{
		PackageName: r.name, PackageSPDXIdentifier: main, PackageVersion: t.version, PackageDownloadLocation: "NOASSERTION",
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: hash}}, PackageLicenseDeclared: "Apache-2.0",
		PackageLicenseConcluded: "Apache-2.0", PackageCopyrightText: "NOASSERTION", PrimaryPackagePurpose: "CONTAINER",
	})
	relate("DOCUMENT", common.TypeRelationshipDescribe, main)
	part := func(kind, name, version, url, checksum string) {
		p := &spdx.Package{
			PackageName: name, PackageSPDXIdentifier: id(kind, name+"-"+version), PackageVersion: version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseDeclared: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
			PackageExternalReferences: []*spdx.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url,
			}},
		}
		if checksum != "" {
			p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: checksum}}
		}
		doc.Packages = append(doc.Packages, p)
		relate(main, common.TypeRelationshipContains, p.PackageSPDXIdentifier)
	}
	part("Go", "go", info.GoVersion, "pkg:golang/stdlib@"+info.GoVersion, "")
	for _, m := range modules(info) {
		part("Module", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version, "")
	}
	for i := range packages {
		p := &packages[i]
		part("Debian", p.name, p.version, "pkg:deb/debian/"+p.name+"@"+p.version+"?arch="+p.arch, p.sum)
	}
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  ")); err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return out.Bytes(), nil
}
