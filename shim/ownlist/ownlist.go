// Package ownlist follows a list of the operator's that is a file on the node, which the control plane cannot write.
package ownlist

import "os"

// File is such a list. Its methods are for one caller at a time.
type File[L any] struct {
	Path string
	load func(path string) (L, error)

	read os.FileInfo // the file that was read last
	err  error       // what is wrong with it
}

// At returns the list at a path, which load reads.
func At[L any](path string, load func(path string) (L, error)) *File[L] {
	return &File[L]{Path: path, load: load}
}

// Look reads the list if it is another one than before. One that cannot be read, or is not valid, is no change.
func (f *File[L]) Look() (now L, changed bool, err error) {
	// Kubernetes replaces the whole file, and an editor writes into it.
	info, err := os.Stat(f.Path)
	if err == nil && f.read != nil && os.SameFile(info, f.read) && info.ModTime().Equal(f.read.ModTime()) {
		return now, false, f.err
	}
	now, err = f.load(f.Path)
	f.read, f.err = info, err
	return now, err == nil, err
}
