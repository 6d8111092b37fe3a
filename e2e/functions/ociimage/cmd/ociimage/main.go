// Command ociimage writes a container image with one static binary to standard output.
//
//	ociimage -ref example.test/fire:v1 -binary bin/fire | ctr images import -
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

func main() {
	var env []string
	ref := flag.String("ref", "", "the image's name with a tag")
	binary := flag.String("binary", "", "the static binary that becomes the entrypoint")
	flag.Func("env", "a default `NAME=value`; may be repeated", func(s string) error {
		env = append(env, s)
		return nil
	})
	flag.Parse()
	if err := run(*ref, *binary, env); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(ref, binary string, env []string) error {
	const executable = 0o755
	entrypoint := path.Join("/", filepath.Base(binary))
	out := bufio.NewWriter(os.Stdout)
	err := ociimage.Build(out, ociimage.Image{
		Ref:        ref,
		Files:      map[string]ociimage.File{entrypoint: {Source: binary, Mode: executable}},
		Entrypoint: []string{entrypoint},
		Env:        env,
	})
	if err != nil {
		return err
	}
	return out.Flush()
}
