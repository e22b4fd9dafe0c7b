package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what a binary was linked of, as its build information lists it: every module, and the standard
// library.
func (r *release) writeSBOM(binary, name string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	hashes := []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}}
	product := component(cdx.ComponentTypeApplication, info.Main.Path, r.version, "")
	product.Hashes = &hashes
	product.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	product.Properties = &[]cdx.Property{{Name: "edgelimit:commit", Value: r.commit},
		{Name: "edgelimit:binary", Value: filepath.Base(binary)}}
	modules := []cdx.Component{
		component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		modules = append(modules, component(cdx.ComponentTypeLibrary, dep.Path, dep.Version, dep.Sum))
	}
	refs := make([]string, len(modules))
	for i, m := range modules {
		refs[i] = m.BOMRef
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &product}
	bom.Components = &modules
	bom.Dependencies = &[]cdx.Dependency{{Ref: product.BOMRef, Dependencies: &refs}}
	return r.create(name, func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// component describes a Go module. sum is its h1: hash in go.sum, which is of its files' names and contents.
func component(kind cdx.ComponentType, module, version, sum string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", module, version)
	c := cdx.Component{BOMRef: url, Type: kind, Name: module, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}
