// Package boto is a sample function in Python that reads and stores by boto3, unmodified.
package boto

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Ref is the image's.
const Ref = "headstart.local/boto:1"

// Answer is what the function says of a request.
type Answer struct {
	SHA256       string  `json:"sha256"`
	Bytes        int64   `json:"bytes"`
	ReadSeconds  float64 `json:"read_seconds"`
	WriteSeconds float64 `json:"write_seconds"`
	Error        string  `json:"error"`
}

//go:embed function.py
var program []byte

// interpreter is Debian's, whose library e2e/setup.sh has compiled for images, as their files have no times.
const interpreter = "/usr/bin/python3.11"

// packages are boto3 and what it needs.
var packages = []string{"boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3"}

// Image returns the function's image. bin is where `make setup` has put what images of Python have.
func Image(bin string) ([]byte, error) {
	files := map[string]ociimage.File{interpreter: {Source: interpreter, Mode: 0o755},
		"/function.py": {Content: program, Mode: 0o644}}
	var modules []string
	trees := map[string]string{"/usr/lib/python3.11": "python-library", "/site/six.py": "python/six.py"}
	for _, name := range packages {
		trees["/site/"+name] = "python/" + name
	}
	for in, from := range trees {
		found, err := ociimage.AddTree(files, in, filepath.Join(bin, "sdks", from))
		if err != nil {
			return nil, fmt.Errorf("looking for what Python needs; `make setup` brings it: %w", err)
		}
		modules = append(modules, found...)
	}
	if err := ociimage.AddLibraries(files, append(modules, interpreter)...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := ociimage.Build(&b, ociimage.Image{Ref: Ref, Entrypoint: []string{interpreter, "/function.py"}, Files: files,
		Env: []string{"PYTHONPATH=/site", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"}})
	return b.Bytes(), err
}
