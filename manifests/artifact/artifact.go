// Package artifact makes what a release consists of, in a way that makes the same bytes from the same source.
package artifact

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Module is the path of the module whose programs are built.
const Module = "github.com/headstart-mesh/headstart"

// Built is the time of everything.
var Built = time.Unix(0, 0).UTC()

// File is a file of an archive or an image.
type File struct {
	Name    string
	Content []byte
	Mode    int64
}

// Tar writes a tar archive.
func Tar(to io.Writer, files ...File) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: Built}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	return w.Close()
}

// TarGz writes a tar archive that is compressed by gzip.
func TarGz(to io.Writer, files ...File) error {
	w, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(Tar(w, files...), w.Close())
}

// Zip writes a zip archive. Its times begin in 1980, and are left out.
func Zip(to io.Writer, files ...File) error {
	w := zip.NewWriter(to)
	for _, f := range files {
		h := zip.FileHeader{Name: f.Name, Method: zip.Deflate}
		h.SetMode(os.FileMode(f.Mode))
		in, err := w.CreateHeader(&h)
		if err == nil {
			_, err = in.Write(f.Content)
		}
		if err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	return w.Close()
}

// Write makes a file by write.
func Write(path string, write func(io.Writer, ...File) error, files ...File) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f, files...), f.Close())
}

// Program builds one that says it is of that version, for an operating system and an architecture of Go's.
func Program(ctx context.Context, dir, pkg, version, system, arch string, args ...string) ([]byte, error) {
	args = append(args, "-ldflags", "-s -w -X "+Module+"/shim/nodeapi.Version="+version)
	return Compile(ctx, dir, pkg, []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch}, args...)
}

// Compile builds a main package of the module in dir. Nothing of the working copy goes into it. What the compiler says
// goes to standard error.
func Compile(ctx context.Context, dir, pkg string, env []string, args ...string) ([]byte, error) {
	to, err := os.MkdirTemp("", "headstart-build")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(to)
	out := filepath.Join(to, filepath.Base(pkg))
	args = slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", out}, args, []string{"./" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(cmd.Environ(), env...)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", pkg, err)
	}
	return os.ReadFile(out)
}
