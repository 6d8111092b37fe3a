package world

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// keepLogs copies what processes and pods have written to logs/ in WorkDir: with the cluster
// the pods' logs go, and with the next cluster those of the processes.
func (w *World) keepLogs() error {
	kept := w.path("logs")
	if err := os.RemoveAll(kept); err != nil {
		return err
	}
	errs := []error{copyTree(w.LogDir(), filepath.Join(kept, "processes"))}
	for _, n := range w.Nodes() {
		errs = append(errs, copyTree(n.PodLogs(), filepath.Join(kept, n.Name)))
	}
	return errors.Join(errs...)
}

// copyTree copies the directories and files of a directory, if it is there. Pods' logs may go
// while they are copied, with the pods.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			var name string
			if name, err = filepath.Rel(from, path); err == nil && d.IsDir() {
				err = os.MkdirAll(filepath.Join(to, name), 0o755)
			} else if err == nil && d.Type().IsRegular() {
				err = copyFile(path, filepath.Join(to, name))
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
