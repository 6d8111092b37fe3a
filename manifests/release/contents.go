package main

import (
	"bytes"
	"debug/buildinfo"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// contents says what a program is made of (CycloneDX 1.6, JSON), as its compiler has noted in it. It has no serial number
// and no time: it is the same for the same program.
func contents(name, version string, program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: "pkg:golang/" + info.Path + "@" + version}}
	parts := []cdx.Component{library("std", info.GoVersion)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, library(m.Path, m.Version))
	}
	bom.Components = &parts
	var text bytes.Buffer
	err = cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

func library(path, version string) cdx.Component {
	// By the specification of package URLs: in lower case, and with a plus escaped.
	url := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
